"""Constants fitted to every second measured kernel of a V100 by `benchmarks/kernels_fit.py`; other devices scale them."""

from pesto.costs.kernels.machine import Constants, ConvConstants

MATMULS: dict[bool, Constants] = {
    False: Constants(launch=0.4544, efficiency=0.9068, small=0.1981, split_s=1.623e-06, wave_s=9.436e-07, half=1.463e+04, l2=1.064, fill=16.9, bandwidth=1.157, spread=5.557, transposed=0.3848, transposed_work=0.01565, unaligned=0.9977),
    True: Constants(launch=0.6103, efficiency=0.9669, small=0.3203, split_s=6.151e-06, wave_s=1.483e-06, half=4495, l2=0.6923, fill=11.8, bandwidth=0.9151, spread=4.123, transposed=1.186, transposed_work=0.09872, unaligned=1.962),
}
"""Of vector units and of tensor cores."""

CONVOLUTIONS: dict[bool, tuple[tuple[Constants, ConvConstants], ...]] = {
    False: (
    # fp32, conv forward
    (Constants(launch=0.8557, efficiency=0.9189, small=0.5601, split_s=2.988e-06, wave_s=1.079e-06, half=2106, l2=1.236, fill=14.2, bandwidth=0.8516),
     ConvConstants(gathered=1.356, pointwise=0.8894, strided=0.8067, strided_pointwise=0.8358, large=3.178, few=1.112, extra_s=5.851e-06, winograd=0.7479, transforms=0.6607, fused=1.396, zeroed=0.5002, plain=0.1917, splits=1, narrowest=32)),
    # fp32, conv input gradient
    (Constants(launch=0.8571, efficiency=1.032, small=1.549, split_s=2.764e-06, wave_s=1.005e-06, half=3897, l2=1.293, fill=27.25, bandwidth=0.9863),
     ConvConstants(gathered=1.21, pointwise=1.117, strided=0.7543, strided_pointwise=0.5591, large=1.599, few=0.958, extra_s=2.072e-06, winograd=0.7694, transforms=0.6011, fused=1.954, zeroed=0.4972, plain=0.1739, splits=4, narrowest=64)),
    # fp32, conv filter gradient
    (Constants(launch=0.8151, efficiency=1.205, small=0.389, split_s=5.123e-06, wave_s=1.145e-06, half=1478, l2=1.2, fill=8.438, bandwidth=0.6315),
     ConvConstants(gathered=0.6075, pointwise=0.7126, strided=1.172, strided_pointwise=0.7993, large=2.292, few=1.171, extra_s=2.539e-06, winograd=0.9737, transforms=0.6139, fused=1.973, zeroed=0.4996, plain=0.2042, splits=64, narrowest=64)),
    ),
    True: (
    # fp16, conv forward
    (Constants(launch=0.8062, efficiency=1.294, small=0.341, split_s=2.914e-06, wave_s=1.346e-06, half=3015, l2=0.4455, fill=6.87, bandwidth=0.9627),
     ConvConstants(gathered=0.9859, pointwise=0.8463, strided=0.7029, strided_pointwise=0.6083, large=1.406, few=0.6779, extra_s=2.075e-06, winograd=0.7046, transforms=0.4887, fused=0.9992, zeroed=0.4897, plain=0.09518, splits=1, narrowest=32)),
    # fp16, conv input gradient
    (Constants(launch=0.9508, efficiency=0.7879, small=0.4357, split_s=2.839e-06, wave_s=1.128e-06, half=3191, l2=1.049, fill=14.57, bandwidth=0.8835),
     ConvConstants(gathered=0.7237, pointwise=1.173, strided=0.7266, strided_pointwise=0.7043, large=1.02, few=1.076, extra_s=7.157e-06, winograd=0.7017, transforms=0.3857, fused=1.315, zeroed=0.4374, plain=0.1992, splits=1, narrowest=32)),
    # fp16, conv filter gradient
    (Constants(launch=0.86, efficiency=1.283, small=0.3265, split_s=2.931e-06, wave_s=1.476e-06, half=2388, l2=0.4624, fill=12.35, bandwidth=0.9016),
     ConvConstants(gathered=0.9137, pointwise=0.8385, strided=0.5861, strided_pointwise=0.8205, large=0.8768, few=0.9218, extra_s=3.495e-06, winograd=0.7384, transforms=0.5089, fused=1, zeroed=0.4733, plain=0.1597, splits=64, narrowest=32)),
    ),
}
"""The same of the forward pass and the gradients towards input and filter."""
