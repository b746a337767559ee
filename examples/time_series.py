"""Time series forecasting with a GRU
==================================

A GRU forecasts the next day of a town's electricity demand, hour by hour.

The series is made up, so nothing is downloaded: a year of hours with a daily and a weekly rhythm,
seasons, slow random drift and noise. The network reads a week and gives the 24 hours that follow.
It is judged on the last month, which it never saw, against the forecasts "as yesterday" and "as a
week ago".
Shows: windows cut from a series by timeseries_dataset_from_array, GRU, ops in a functional model, a
forecast of many values.

Run: python examples/time_series.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import layers, ops

keras.utils.set_random_seed(0)
WEEK, DAY = 7 * 24, 24

# %%
# The series
# ----------
# Peaks in the morning and the evening, lower ones at weekends, in megawatts.

rng = np.random.default_rng(0)
hours = np.arange(365 * DAY)
hour, weekday = hours % DAY, hours // DAY % 7
morning, evening = np.exp(-((hour - 8.5) ** 2) / 6), np.exp(-((hour - 19) ** 2) / 10)
rhythm = 18 + np.where(weekday < 5, 12, 4) * morning + 9 * evening
season = 4 * np.cos(2 * np.pi * hours / len(hours))
drift = np.zeros(len(hours))
for i in range(1, len(hours)):
    drift[i] = 0.98 * drift[i - 1] + rng.normal(scale=0.45)
noise = rng.normal(scale=0.5, size=len(hours))
series = (rhythm + season + drift + noise).astype("float32")

# %%
# Windows
# -------
# An example is a week and the day after it. For training a window begins every third hour; the last
# month is held out, one forecast per day.


def cut_windows(series: np.ndarray, every: int) -> keras.data.Dataset:
    """Return batches of (a week, the day after it), a window beginning every few hours."""
    days = np.lib.stride_tricks.sliding_window_view(series[WEEK:], DAY)
    return keras.utils.timeseries_dataset_from_array(
        series[:-DAY, None], days, WEEK, sequence_stride=every, batch_size=64, shuffle=False
    )


cut = len(series) - 30 * DAY
mean, spread = series[:cut].mean(), series[:cut].std()
scaled = (series - mean) / spread
training = cut_windows(scaled[:cut], every=3)
testing = cut_windows(scaled[cut - WEEK :], every=DAY)

# %%
# The model
# ---------
# Demand in winter is higher than anything most training windows show. So the network sees each week
# relative to the mean of its last day, and forecasts relative to that mean.

week = keras.Input((WEEK, 1))
level = ops.mean(week[:, -DAY:], axis=1)
forecast = layers.Dense(DAY)(layers.GRU(48)(week - level[:, None])) + level
model = keras.Model(week, forecast)
epochs = 8
rate = keras.optimizers.schedules.CosineDecay(0.01, epochs * len(training))
model.compile(keras.optimizers.Adam(rate), "mse")
model.fit(training, epochs=epochs, verbose=2)

# %%
# Evaluation
# ----------

known, truth = (np.concatenate(parts) for parts in zip(*testing))
predicted = model.predict(known, verbose=0)
print("mean error over the held-out month, in megawatts:")
guesses = {
    "network": predicted,
    "as yesterday": known[:, -DAY:, 0],
    "as a week ago": known[:, :DAY, 0],
}
for name, guess in guesses.items():
    print(f"  {name:<14} {np.abs(guess - truth).mean() * spread:.2f}")

# %%
# Three days of the month: what was known, what came, and the forecast.

known, truth, predicted = (part * spread + mean for part in (known, truth, predicted))
figure, axes = plt.subplots(3, 1, figsize=(9, 7), layout="constrained", sharex=True)
for ax, i in zip(axes, (3, 9, 16)):
    ax.plot(np.arange(-72, 0), known[i, -72:, 0], color="gray", label="known")
    ax.plot(np.arange(DAY), truth[i], label="what came")
    ax.plot(np.arange(DAY), predicted[i], "--", label="forecast")
    ax.set_ylabel("megawatts")
axes[0].set_title("Demand of three held-out days")
axes[0].legend(loc="upper left")
axes[-1].set_xlabel("hours from now")

picture = sys.argv[1] if len(sys.argv) > 1 else "time_series.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
