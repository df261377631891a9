"""Whole training steps of GPT-2 small and ResNet-50."""

import gc
import json
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks.device.timing import TimedDevice, precision, summary

try:
    import torch
    import torch.nn.functional as F  # noqa: N812
except ImportError:
    torch = None


def gpt2(device: TimedDevice, length: int) -> tuple[list[Any], Callable[[], Any]]:
    """Parameters of GPT-2 small without dropout, and its loss on a batch of 8."""
    layers, depth, heads, words, batch = (2, 32, 4, 100, 2) if device.small else (12, 768, 12, 50257, 8)
    params: list[Any] = []

    def new(*shape: int) -> Any:
        params.append(torch.nn.Parameter(0.02 * device.random(*shape)))
        return params[-1]

    table, places = new(words, depth), new(length, depth)
    sizes = ((depth,), (depth,), (3 * depth, depth), (3 * depth,), (depth, depth), (depth,), (depth,), (depth,),
             (4 * depth, depth), (4 * depth,), (depth, 4 * depth), (depth,))  # fmt: skip
    blocks = [[new(*s) for s in sizes] for _ in range(layers)]
    last = new(depth), new(depth)
    tokens, wanted = (device.integers(words, batch, length) for _ in range(2))

    def loss() -> Any:
        if device.capturing:  # the gradient of F.embedding waits for the device
            x = table.index_select(0, tokens.view(-1)).view(batch, length, depth) + places
        else:
            x = F.embedding(tokens, table) + places
        for a, b, qkv, qkv_b, proj, proj_b, c, d, up, up_b, down, down_b in blocks:
            h = F.linear(F.layer_norm(x, (depth,), a, b), qkv, qkv_b)
            q, k, v = h.view(batch, length, 3, heads, depth // heads).permute(2, 0, 3, 1, 4).unbind(0)
            h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
            x = x + F.linear(h.reshape(batch, length, depth), proj, proj_b)
            h = F.gelu(F.linear(F.layer_norm(x, (depth,), c, d), up, up_b), approximate="tanh")
            x = x + F.linear(h, down, down_b)
        out = F.linear(F.layer_norm(x, (depth,), *last), table)
        return F.cross_entropy(out.view(-1, words), wanted.view(-1))

    return params, loss


def resnet50(device: TimedDevice, order: Any) -> tuple[list[Any], Callable[[], Any]]:
    """Parameters of ResNet-50, and its loss on a batch of 64."""
    batch, image, stages = (
        (2, 32, ((8, 1), (16, 1))) if device.small else (64, 224, ((64, 3), (128, 4), (256, 6), (512, 3)))
    )
    params: list[Any] = []

    def new(value: Any) -> Any:
        params.append(torch.nn.Parameter(value))
        return params[-1]

    def layer(c: int, k: int, r: int) -> tuple[Any, ...]:
        w = device.random(k, c, r, r) * (2 / (c * r * r)) ** 0.5
        one, zero = torch.ones(k, device=device.kind), torch.zeros(k, device=device.kind)
        return new(w.contiguous(memory_format=order)), new(one), new(zero.clone()), zero, one.clone()

    stem, blocks, c = layer(3, stages[0][0], 7), [], stages[0][0]
    for place, (k, count) in enumerate(stages):
        for i in range(count):
            short = layer(c, 4 * k, 1) if i == 0 else None
            blocks.append((2 if i == 0 and place else 1, layer(c, k, 1), layer(k, k, 3), layer(k, 4 * k, 1), short))
            c = 4 * k
    weight, bias = new(0.01 * device.random(1000, c)), new(torch.zeros(1000, device=device.kind))
    images = device.random(batch, 3, image, image).contiguous(memory_format=order)
    wanted = device.integers(1000, batch)

    def apply(x: Any, one: tuple[Any, ...], stride: int = 1) -> Any:
        w, gain, shift, mean, var = one
        return F.batch_norm(F.conv2d(x, w, None, stride, w.shape[-1] // 2), mean, var, gain, shift, training=True)

    def loss() -> Any:
        x = F.max_pool2d(F.relu(apply(images, stem, 2), inplace=True), 3, 2, 1)
        for stride, one, two, three, short in blocks:
            h = F.relu(apply(x, one), inplace=True)
            h = apply(F.relu(apply(h, two, stride), inplace=True), three)
            x = F.relu(h + (apply(x, short, stride) if short else x), inplace=True)
        return F.cross_entropy(F.linear(x.mean((2, 3)), weight, bias), wanted)

    return params, loss


def step_rows(device: TimedDevice) -> list[tuple[str, Callable[[], Any]]]:
    """Steps by model, size and precision, the most telling first."""
    long, longer = (16, 32) if device.small else (512, 1024)
    every = [("gpt2", long, "bfloat16"), ("resnet50", 1, "bfloat16"), ("gpt2", long, "tf32"), ("resnet50", 0, "tf32"),
             ("gpt2", longer, "bfloat16"), ("resnet50", 0, "float32"), ("gpt2", long, "float32"),
             ("gpt2", longer, "tf32"), ("resnet50", 1, "tf32")]  # fmt: skip
    profiled(device, lambda: device.random(16))  # the first profile of a process starts the profiler
    return [(f"{m} {s} {d}", lambda m=m, s=s, d=d: whole_step(device, m, s, d)) for m, s, d in every]


def whole_step(device: TimedDevice, model: str, size: int, dtype: str) -> dict[str, Any]:
    """One training step: eager and replayed times, kernels, gaps, memory, and the list of its ops."""
    gc.collect()
    if device.cuda:
        torch.cuda.empty_cache()
    precision(dtype)
    if model == "gpt2":
        params, loss = gpt2(device, size)
        optimizer = torch.optim.AdamW(params, lr=1e-4, fused=True, capturable=device.cuda)
    else:
        params, loss = resnet50(device, torch.channels_last if size else torch.contiguous_format)
        optimizer = torch.optim.SGD(params, lr=1e-3, momentum=0.9, foreach=True)
    half = torch.autocast(device.kind, torch.bfloat16, enabled=dtype == "bfloat16", cache_enabled=False)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with half:
            value = loss()
        value.backward()
        optimizer.step()

    result: dict[str, Any] = {"model": model, "dtype": dtype, "faults": []}
    result |= {"length": size} if model == "gpt2" else {"layout": ("channels first", "channels last")[size]}
    result["parameters"] = sum(p.numel() for p in params)

    def part(name: str, make: Callable[[], Any]) -> None:
        try:
            result[name] = make()
        except Exception as error:
            result["faults"].append(f"{name}: {type(error).__name__}: {error}"[:400])
            print(f"  fault in {model} {dtype} {result['faults'][-1][:160]}", flush=True)

    side = torch.cuda.Stream() if device.cuda else None
    with torch.cuda.stream(side) if side else nullcontext():
        for _ in range(3):
            step()
    device.sync()
    part("memory", lambda: memory(device, step, optimizer))
    part("eager", lambda: summary(device.samples(step, repeats(device, step))))
    graph = torch.cuda.CUDAGraph() if device.cuda else None

    def replayed() -> dict[str, Any]:
        optimizer.zero_grad(set_to_none=True)
        gc.collect()
        torch.cuda.empty_cache()
        device.capturing = True
        try:
            step()
            optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph):
                step()
        finally:
            device.capturing = False
        graph.replay()
        return summary(device.samples(graph.replay, repeats(device, graph.replay)))

    if graph:
        part("graph", replayed)
    part("ops", lambda: logged(step))
    part("eager_profile", lambda: profiled(device, step))
    if "graph" in result:
        part("graph_profile", lambda: profiled(device, graph.replay))
    return result


def repeats(device: TimedDevice, step: Callable[[], None]) -> int:
    """Return the number of steps that take about a second, from 5 to 30."""
    return max(5, min(30, int(1 / max(device.samples(step, 1)[0], 1e-4)))) if not device.small else 3


def memory(device: TimedDevice, step: Callable[[], None], optimizer: Any) -> dict[str, Any]:
    """Bytes that torch's allocator gave out: before a step and at most within it."""
    if not device.cuda:
        return {}
    optimizer.zero_grad(set_to_none=True)
    device.sync()
    torch._C._cuda_clearCublasWorkspaces()  # one for each stream that any row had
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    device.sync()
    said = torch.cuda.memory_stats()
    return {
        "before_bytes": before, "peak_bytes": torch.cuda.max_memory_allocated(),
        "requested_peak_bytes": said.get("requested_bytes.all.peak"), "reserved_bytes": torch.cuda.memory_reserved(),
    }  # fmt: skip


def profiled(device: TimedDevice, step: Callable[[], None]) -> dict[str, Any]:
    """Every kernel of one step: [name, op that launched it, start in us, duration in us, stream]."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.cuda else [])]
    device.sync()
    with profile(activities=kinds) as watched:
        step()
        device.sync()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        watched.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    on_device = ("kernel", "gpu_memcpy", "gpu_memset") if device.cuda else ("cpu_op",)
    name_of: dict[Any, str] = {}
    for event in events:
        if event.get("cat") == "cpu_op":
            name_of[event.get("args", {}).get("External id")] = event["name"]
    kernels = sorted((e for e in events if e.get("cat") in on_device and e.get("ph") == "X"), key=lambda e: e["ts"])
    names: dict[str, int] = {}
    rows = []
    for event in kernels:
        args = event.get("args", {})
        launched_by = name_of.get(args.get("External id"), "")
        at = [names.setdefault(text, len(names)) for text in (event["name"][:160], launched_by)]
        times = [round(event["ts"] - kernels[0]["ts"], 3), round(event["dur"], 3)]
        rows.append([*at, *times, args.get("stream", 0)])
    return {"names": list(names), "kernels": rows}


def logged(step: Callable[[], None]) -> dict[str, Any]:
    """Every op of one step with its shapes, and which tensors share storage.

    `ops`: [name, arguments, outputs, arguments written in place]; "%k" is the k-th of `tensors`: [storage, shape,
    strides, data type]. `storages` are bytes.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map
    from torch.utils.weak import WeakIdKeyDictionary

    ids, storages, tensors = WeakIdKeyDictionary(), [], {}
    ops: list[Any] = []

    def told(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            if storage not in ids:
                ids[storage] = len(storages)
                storages.append(storage.nbytes())
            key = (ids[storage], tuple(value.shape), tuple(value.stride()), str(value.dtype).removeprefix("torch."))
            return f"%{tensors.setdefault(key, len(tensors))}"
        return value if isinstance(value, int | float | str | None) else str(value)

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            said = tree_map(told, list(args))
            named = tree_map(told, dict(kwargs or {}))
            out = func(*args, **(kwargs or {}))
            schema = func._schema.arguments
            written = [
                said[k] if k < len(said) else named.get(a.name)
                for k, a in enumerate(schema) if a.alias_info is not None and a.alias_info.is_write
            ]  # fmt: skip
            ops.append([str(func), [*said, *named.values()], tree_map(told, out), written])
            return out

    with Log():
        step()
    return {"ops": ops, "tensors": list(tensors), "storages": storages}
