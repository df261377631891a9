"""Constants of kernels, fitted to measured kernels of two GPUs; other devices scale them."""

from pesto.core.costs.kernel_rates import Constants, ConvConstants

# fmt: off

# Fitted to every second measured kernel of a V100 (`benchmarks/kernels_fit.py`).
_V100_MATMULS: dict[bool, Constants] = {
    False: Constants(
        launch=0.4544, efficiency=0.9068, small=0.1981, split_s=1.623e-06, wave_s=9.436e-07, half=1.463e04,
        l2=1.064, fill=16.9, bandwidth=1.157, spread=5.557, transposed=0.3848, transposed_work=0.01565,
        unaligned=0.9977,
    ),
    True: Constants(
        launch=0.6103, efficiency=0.9669, small=0.3203, split_s=6.151e-06, wave_s=1.483e-06, half=4495,
        l2=0.6923, fill=11.8, bandwidth=0.9151, spread=4.123, transposed=1.186, transposed_work=0.09872,
        unaligned=1.962,
    ),
}
_V100_CONVOLUTIONS: dict[bool, tuple[tuple[Constants, ConvConstants], ...]] = {
    False: (
        (
            Constants(
                launch=0.8613, efficiency=0.9275, small=0.5521, split_s=2.863e-06, wave_s=1.241e-06,
                half=2064, l2=1.372, fill=13.21, bandwidth=0.8611,
            ),
            ConvConstants(
                gathered=1.322, pointwise=0.901, strided=0.816, strided_pointwise=0.8452, large=3.207,
                few=1.112, extra_s=6.113e-06, winograd=0.7496, transforms=0.6521, fused=1.429,
                zeroed=0.5161, plain=0.1615, splits=1, narrowest=32,
            ),
        ),
        (
            Constants(
                launch=0.8571, efficiency=1.032, small=1.549, split_s=2.764e-06, wave_s=1.005e-06,
                half=3897, l2=1.293, fill=27.25, bandwidth=0.9863,
            ),
            ConvConstants(
                gathered=1.21, pointwise=1.117, strided=0.7543, strided_pointwise=0.5591, large=1.599,
                few=0.9277, extra_s=2.072e-06, winograd=0.7694, transforms=0.6011, fused=1.954,
                zeroed=0.4972, plain=0.1585, splits=4, narrowest=64,
            ),
        ),
        (
            Constants(
                launch=0.7919, efficiency=1.192, small=0.4315, split_s=5.841e-06, wave_s=1.208e-06,
                half=1998, l2=1.225, fill=9.135, bandwidth=0.659,
            ),
            ConvConstants(
                gathered=0.6101, pointwise=0.7362, strided=1.193, strided_pointwise=0.8394, large=2.34,
                few=1.278, extra_s=2.264e-06, winograd=0.9818, transforms=0.6211, fused=2.026,
                zeroed=0.5121, plain=0.2076, splits=64, narrowest=64,
            ),
        ),
    ),
    True: (
        (
            Constants(
                launch=0.8496, efficiency=1.126, small=0.3694, split_s=2.615e-06, wave_s=1.7e-06, half=6060,
                l2=0.5799, fill=8.18, bandwidth=1,
            ),
            ConvConstants(
                gathered=0.9323, pointwise=0.8322, strided=0.6801, strided_pointwise=0.6666, large=1.747,
                few=0.2297, extra_s=2.031e-06, winograd=0.7126, transforms=0.4889, fused=0.9985,
                zeroed=0.5016, plain=0.2222, splits=1, narrowest=32,
            ),
        ),
        (
            Constants(
                launch=0.9508, efficiency=0.7879, small=0.4357, split_s=2.839e-06, wave_s=1.128e-06,
                half=3191, l2=1.049, fill=14.57, bandwidth=0.8835,
            ),
            ConvConstants(
                gathered=0.7237, pointwise=1.173, strided=0.7266, strided_pointwise=0.7043, large=1.02,
                few=1.136, extra_s=7.157e-06, winograd=0.7017, transforms=0.3857, fused=1.315,
                zeroed=0.4374, plain=0.1986, splits=1, narrowest=32,
            ),
        ),
        (
            Constants(
                launch=0.8374, efficiency=1.295, small=0.3365, split_s=2.892e-06, wave_s=1.648e-06,
                half=2324, l2=0.4677, fill=11.79, bandwidth=0.9008,
            ),
            ConvConstants(
                gathered=0.9155, pointwise=0.8496, strided=0.5637, strided_pointwise=0.8178, large=0.8674,
                few=0.1199, extra_s=3.606e-06, winograd=0.7471, transforms=0.5143, fused=1, zeroed=0.5069,
                plain=0.8278, splits=64, narrowest=32,
            ),
        ),
    ),
}
# Fitted to half of the measured kernels of an H200 (`benchmarks/device/fit.py`). The constants of filter gradients are
# the V100's: fitted ones did no better on the other half.
_H200_MATMULS: dict[bool, Constants] = {
    False: Constants(
        launch=1, efficiency=1.089, small=0.5667, split_s=4.656e-06, wave_s=7.76e-07, half=1188, l2=0.9954,
        fill=26.53, bandwidth=0.3986, spread=5.607, transposed=0.2857, transposed_work=0.02846,
        latency_s=9.692e-07,
    ),
    True: Constants(
        launch=1, efficiency=1.28, small=0.2315, split_s=4.922e-06, wave_s=1.614e-06, half=885.2, l2=0.5271,
        fill=14.2, bandwidth=0.8157, spread=17.11, transposed=0.2152, transposed_work=0.01749,
        latency_s=1.08e-06, misaligned=1.387,
    ),
}
_H200_CONVOLUTIONS: dict[bool, tuple[tuple[Constants, ConvConstants], ...]] = {
    False: (
        (
            Constants(
                launch=1, efficiency=0.5371, small=0.4636, split_s=2.846e-06, wave_s=1.215e-06, half=1721,
                l2=1.144, fill=18.59, bandwidth=0.7392,
            ),
            ConvConstants(
                gathered=1.597, pointwise=0.8988, strided=0.8749, strided_pointwise=1.013, large=1.006,
                few=0.7974, extra_s=2.35e-06, winograd=0.5445, transforms=0.5541, fused=1.434,
                zeroed=0.4928, plain=0.1839, splits=1, narrowest=32,
            ),
        ),
        (
            Constants(
                launch=1, efficiency=0.5893, small=0.5506, split_s=3.798e-06, wave_s=1.526e-06, half=1978,
                l2=1.336, fill=55.68, bandwidth=0.6998,
            ),
            ConvConstants(
                gathered=1.149, pointwise=1.013, strided=0.7996, strided_pointwise=0.8118, large=1.108,
                few=1.095, extra_s=1.931e-06, winograd=0.5821, transforms=0.5917, fused=1.734,
                zeroed=0.5253, plain=0.2128, splits=4, narrowest=64,
            ),
        ),
        _V100_CONVOLUTIONS[False][2],
    ),
    True: (
        (
            Constants(
                launch=1, efficiency=0.9315, small=0.3071, split_s=3.171e-06, wave_s=1.108e-06, half=916.5,
                l2=1.426, fill=16.16, bandwidth=0.8851,
            ),
            ConvConstants(
                gathered=1.015, pointwise=0.9872, strided=0.8399, strided_pointwise=0.9078, large=1.1,
                few=0.9942, extra_s=1.313e-06, winograd=0.8001, transforms=0.5949, fused=0.9999,
                zeroed=0.5002, plain=0.2067, splits=1, narrowest=32,
            ),
        ),
        (
            Constants(
                launch=1, efficiency=1.402, small=0.317, split_s=2.032e-06, wave_s=6.604e-07, half=1939,
                l2=0.5524, fill=12.68, bandwidth=0.76,
            ),
            ConvConstants(
                gathered=0.6484, pointwise=0.9575, strided=0.8651, strided_pointwise=0.8062, large=1.097,
                few=0.9633, extra_s=1.628e-06, winograd=0.8579, transforms=0.7275, fused=1.202,
                zeroed=0.7594, plain=0.2155, splits=4, narrowest=64,
            ),
        ),
        _V100_CONVOLUTIONS[True][2],
    ),
}
# fmt: on

MATMULS = {"V100": _V100_MATMULS, "H200": _H200_MATMULS}
"""Constants of matmuls by fitted GPU, and by whether tensor cores are used."""
CONVOLUTIONS = {"V100": _V100_CONVOLUTIONS, "H200": _H200_CONVOLUTIONS}
"""Constants of the forward pass and of the gradients towards input and filter, likewise."""
