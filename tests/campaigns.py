"""Small campaigns for the tests, and a way to run one."""

from predictor.profiling.campaign import parse_campaign
from predictor.profiling.runner import run
from predictor.profiling.store import Store

HEAD = "name: small\ngpu: cpu-core\ndevice: cpu\nintra_link: loopback\nmost_seconds: 0.05\n"
KERNELS = "kernels:\n  - {family: linear, m: [32, 64], n: 32, k: 48, dtype: fp32}\n"


def start(folder, text):
    store = Store(folder)
    store.open(parse_campaign(text), resume=False)
    return store


def profiled(folder, text):
    store = start(folder, text)
    run(store, noisy=True, progress=lambda done, total: None)
    return store
