"""ParDNN's algorithms 1 and 2 and both refinements as the thesis has them (section 4.1.1), in plain and slow Python.

Nodes are numbered in topological order. The artificial source and sink are nodes of their own here, before and after
all others. Where the text leaves something open, the choices are those that the modules of `solvers` document.
"""

import itertools
from dataclasses import dataclass, field


@dataclass
class Graph:
    """A graph, with what the text leaves out: kinds, units, and nodes that have a place from the start."""

    comp: list[int]
    edges: list[tuple[int, int, int]]
    """Tail, head, communication."""
    places: int
    ticks: list[list[int]]
    """Computation of each node at each place; that of a node elsewhere is 0."""
    may: list[set[int]]
    """Places of each node; empty where it is fixed."""
    unit: list[int]
    fixed: list[int | None]
    children: list[list[tuple[int, int]]] = field(init=False)
    parents: list[list[tuple[int, int]]] = field(init=False)

    def __post_init__(self):
        self.children = [[(v, cost) for u, v, cost in self.edges if u == n] for n in self.nodes]
        self.parents = [[(u, cost) for u, v, cost in self.edges if v == n] for n in self.nodes]

    @property
    def nodes(self):
        return range(len(self.comp))

    def took(self, node, place):
        return self.ticks[node][place] if place < self.places else self.comp[node]


def levels(g: Graph, left: set[int]):
    """Table 4.2: tl, bl and w_lvl in the graph of the nodes that are left."""
    tl, bl = {}, {}
    for n in sorted(left):
        tl[n] = max([0, *(tl[p] + g.comp[p] + cost for p, cost in g.parents[n] if p in left)])
    for n in sorted(left, reverse=True):
        bl[n] = g.comp[n] + max([0, *(cost + bl[c] for c, cost in g.children[n] if c in left)])
    return tl, bl, {n: tl[n] + bl[n] for n in left}


def heaviest_path(g: Graph, left: set[int], w_lvls, places: set[int]):
    """Along the priorities until a dead end."""
    tl, bl, w_lvl = w_lvls
    able = [n for n in left if g.may[n] & places]
    if not able:
        return []
    node = min(able, key=lambda n: (-w_lvl[n], tl[n], n))
    path = [node]
    while True:
        places = places & g.may[node]
        steps = [(w_lvl[c], cost + bl[c], c) for c, cost in g.children[node] if c in left and g.may[c] & places]
        if not steps:
            return path
        most = max(step[:2] for step in steps)
        node = next(c for *level, c in steps if tuple(level) == most)
        path.append(node)


def slicing(g: Graph):
    """Algorithm 1: the primaries, then the secondaries."""
    left = {n for n in g.nodes if g.fixed[n] is None}
    clusters = []
    for j in range(g.places):
        able = {n for n in left if j in g.may[n]}
        clusters.append(heaviest_path(g, able, levels(g, able), {j}))
        left -= set(clusters[-1])
    w_lvls = levels(g, left)
    while left:
        clusters.append(heaviest_path(g, left, w_lvls, set(range(g.places))))
        left -= set(clusters[-1])
    return clusters


def join_units(g: Graph, paths):
    """The nodes of a unit to the cluster of its heaviest."""
    _, _, w_lvl = levels(g, set(g.nodes))
    of = {n: c for c, path in enumerate(paths) for n in path}
    clusters = [[] for _ in paths]
    for n in g.nodes:
        if g.fixed[n] is None:
            unit = [other for other in g.nodes if g.unit[other] == g.unit[n]]
            clusters[of[min(unit, key=lambda o: (-g.comp[o], -w_lvl[o], o))]].append(n)
    return clusters


def span(g: Graph, path, tl):
    """From the finish of the last parent of the first node to the start of the first child of the last."""
    sink = max(tl[n] + g.comp[n] for n in g.nodes)
    begin = max((tl[p] + g.comp[p] for p, _ in g.parents[path[0]]), default=0)
    return begin, min((tl[c] for c, _ in g.children[path[-1]]), default=sink)


class Mapping:
    """Algorithm 2 and the refinements, over clusters that are mapped one after the other."""

    def __init__(self, g: Graph):
        self.g, self.paths = g, slicing(g)
        self.clusters = join_units(g, self.paths)
        self.tl = levels(g, set(g.nodes))[0]
        self.place = dict(enumerate(g.fixed))
        self.spans = [span(g, path, self.tl) if path else (0, 0) for path in self.paths]

    def put(self, sc, place):
        for n in self.clusters[sc]:
            self.place[n] = place

    def work(self, place, when):
        """Work of a place at the levels within a span."""
        return sum(self.g.took(n, place) for n in self.g.nodes if self.place[n] == place and self.within(n, when))

    def within(self, n, when):
        return when[0] <= self.tl[n] < when[1]

    def comm(self, sc, place=None):
        """Communication of a cluster with a place, or with all else."""
        own = set(self.clusters[sc])
        ends = [(v if u in own else u, cost) for u, v, cost in self.g.edges if (u in own) != (v in own)]
        return sum(cost for other, cost in ends if place is None or self.place[other] == place)

    def potential(self, sc):
        counted = [n for n in self.g.nodes if self.g.fixed[n] is None or self.g.fixed[n] < self.g.places]
        others = [n for n in counted if n not in self.clusters[sc]]
        return sum(self.g.comp[n] for n in others if self.within(n, self.spans[sc]))

    def places(self, sc):
        return sorted(set.intersection(*(self.g.may[n] for n in self.clusters[sc])))

    def load(self, sc, place):
        return sum(self.g.ticks[n][place] for n in self.clusters[sc])

    def map(self):
        """Algorithm 2."""
        for j in range(self.g.places):
            self.put(j, j)
        secondary = [sc for sc in range(self.g.places, len(self.clusters)) if self.clusters[sc]]
        rest = []
        for sc in secondary:
            talks = [j for j in self.places(sc) if self.comm(sc, j) > 0]
            if self.comm(sc) - self.potential(sc) > 0 and talks:
                self.put(sc, max(talks, key=lambda j: (self.comm(sc, j), -j)))
            else:
                rest.append(sc)
        for sc in sorted(rest, key=lambda sc: (-sum(self.g.comp[n] for n in self.clusters[sc]), sc)):
            self.put(sc, min(self.places(sc), key=lambda j: (self.cost(sc, j), -self.comm(sc, j), j)))

    def cost(self, sc, place):
        """Equation (4.2), with the cluster's own work there, in which places that are not alike differ."""
        others = sum(self.comm(sc, j) for j in range(self.g.places) if j != place)
        return self.work(place, self.spans[sc]) + self.load(sc, place) + others

    def cut(self):
        """All communication between places."""
        return sum(cost for u, v, cost in self.g.edges if self.place[u] != self.place[v])

    def swap(self, partners, looked):
        """The first policy, every sum from scratch."""
        order = [sc for sc in range(self.g.places, len(self.clusters)) if self.clusters[sc]]
        order.sort(key=lambda sc: (self.tl[self.paths[sc][0]], sc))
        done = set()
        for at, one in enumerate(order):
            if one in done:
                continue
            near = [sc for sc in order[at + 1 : at + 1 + looked] if self.tl[self.paths[sc][0]] < self.spans[one][1]]
            near = [sc for sc in near if sc not in done and self.may_swap(one, sc)][:partners]
            gains = [self.gain(one, two) for two in near]
            if gains and max(gains) > 0:
                two = near[gains.index(max(gains))]
                self.exchange(one, two)
                done |= {one, two}

    def at(self, sc):
        return self.place[self.clusters[sc][0]]

    def may_swap(self, one, two):
        here, there = self.at(one), self.at(two)
        return here != there and there in self.places(one) and here in self.places(two)

    def exchange(self, one, two):
        here, there = self.at(one), self.at(two)
        self.put(one, there)
        self.put(two, here)

    def gain(self, one, two):
        """What a swap saves in communication and in the greater work, when neither grows."""
        pair = self.at(one), self.at(two)
        sums = []
        for _ in range(2):
            sums.append((self.cut(), max(self.work(j, self.spans[one]) for j in pair)))
            self.exchange(one, two)
        (cut, most), (new_cut, new_most) = sums
        return cut - new_cut + most - new_most if new_cut <= cut and new_most <= most else 0

    def lengths(self):
        """tl, bl and the length of the critical path of the partitioned graph."""
        g, tl, bl = self.g, {}, {}
        for n in g.nodes:
            tl[n] = self.before(n, self.place[n], tl)
        for n in reversed(g.nodes):
            bl[n] = g.took(n, self.place[n]) + self.after(n, self.place[n], bl)
        return tl, bl, max((tl[n] + bl[n] for n in g.nodes), default=0)

    def before(self, n, place, tl):
        g = self.g
        ways = [tl[p] + g.took(p, self.place[p]) + (cost if self.place[p] != place else 0) for p, cost in g.parents[n]]
        return max(ways, default=0)

    def after(self, n, place, bl):
        return max((bl[c] + (cost if self.place[c] != place else 0) for c, cost in self.g.children[n]), default=0)

    def switch(self):
        """The second policy."""
        for _ in range(self.g.places):
            tl, bl, longest = self.lengths()
            before, switched = dict(self.place), False
            path = self.critical(tl, bl, longest)
            for a, b in itertools.pairwise(path):
                ways = [(self.through(n, self.place[to], tl, bl), k, n, to) for k, n, to in ((0, a, b), (1, b, a))
                        if self.place[a] != self.place[b] and self.may_switch(n, self.place[to])]  # fmt: skip
                if ways and min(ways)[0] < longest:
                    _, _, n, to = min(ways)
                    place = self.place[to]
                    tl[n] = self.before(n, place, tl)
                    bl[n] = self.g.took(n, place) + self.after(n, place, bl)
                    self.place[n], switched = place, True
            if self.lengths()[2] > longest:
                self.place = before
                return
            if not switched:
                return

    def may_switch(self, n, place):
        return place in self.g.may[n] and self.g.unit.count(self.g.unit[n]) == 1

    def through(self, n, place, tl, bl):
        return self.before(n, place, tl) + self.g.took(n, place) + self.after(n, place, bl)

    def critical(self, tl, bl, longest):
        g = self.g
        path = [n for n in g.nodes if tl[n] == 0 and bl[n] == longest][:1]
        while path:
            n = path[-1]
            left = bl[n] - g.took(n, self.place[n])
            tight = [c for c, cost in g.children[n] if bl[c] + (cost if self.place[c] != self.place[n] else 0) == left]
            if not tight:
                break
            path.append(tight[0])
        return path


def partitioned(g: Graph, *, refine: bool, partners: int, looked: int):
    """Place of every node after step 1."""
    m = Mapping(g)
    m.map()
    if refine:
        m.swap(partners, looked)
        m.switch()
    return [m.place[n] for n in g.nodes]
