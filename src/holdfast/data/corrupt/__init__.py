"""How each corruption of the benchmark is made (after Hendrycks and Dietterich 2019).

A function here takes images as float32 in [0, 1], the dice for whatever is random, and the figures
of one severity. What it returns may lie outside [0, 1]; `holdfast.data.corruptions` clips.
"""
