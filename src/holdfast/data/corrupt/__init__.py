"""How each corruption of the benchmark is made (after Hendrycks and Dietterich 2019).

A function here takes images, the dice for whatever is random, and the parameters of one severity.
Images are float32 in [0, 1], or bytes where pillow does the work. What comes out may lie outside
[0, 1]: `holdfast.data.corrupt.corruptions` clips.
"""
