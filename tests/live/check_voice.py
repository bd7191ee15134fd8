"""Compares examples/30_voice.attn, with the trained weights of silero-vad, with NumPy in float64.

    python tests/live/check_voice.py [ATTNC]      needs pip and NumPy; fetches the package into build/voice

The sound is made here: a voice of harmonics and two formants that speaks in bursts, and noise. Each probability must be that of
tests/fixtures/reference.py, of the recording at once and in pieces, and the detector must hear the voice and not the pauses.
Exit code 1 where anything differs, 3 where the package cannot be fetched.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "voice"
WEIGHTS = BUILD / "silero_vad_16k.safetensors"
PACKAGE = "silero-vad==6.2.3"
CHUNK, RATE = 512, 16000
# What a probability may be off by: f32 beside float64, over all chunks.
TOLERANCE = 1e-4


def fetch():
    """The weights, out of the package's wheel."""
    BUILD.mkdir(parents=True, exist_ok=True)
    line = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if subprocess.run([*line, "--dest", str(BUILD), PACKAGE]).returncode:
        print(f"check_voice.py: pip could not fetch {PACKAGE}", file=sys.stderr)
        sys.exit(3)
    (wheel,) = BUILD.glob("silero_vad-*.whl")
    with zipfile.ZipFile(wheel) as files:
        WEIGHTS.write_bytes(files.read("silero_vad/data/" + WEIGHTS.name))
    wheel.unlink()


def sound(chunks):
    """Samples, and for each chunk whether the voice speaks in all of it (1), in none of it (0), or in between."""
    t = np.arange(chunks * CHUNK) / RATE
    pitch = 120 + 20 * np.sin(2 * np.pi * 3 * t)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    formants = ((700, 400, 1.0), (1200, 300, 0.5))
    voice = sum(
        strength * np.exp(-(((k * pitch - centre) / width) ** 2) / 2) * np.sin(k * phase)
        for centre, width, strength in formants
        for k in range(1, 25)
    )
    speaks = np.sin(2 * np.pi * 0.7 * t) > 0
    noise = np.random.default_rng(0).standard_normal(len(t)) * 0.003
    samples = 0.1 * speaks * (0.5 + 0.5 * np.sin(2 * np.pi * 4 * t)) * voice + noise
    return samples.astype(np.float32).reshape(-1, CHUNK), speaks.reshape(-1, CHUNK).mean(1)


def main():
    attnc = sys.argv[1] if len(sys.argv) > 1 else ROOT / "target" / "release" / "attnc"
    if not WEIGHTS.exists():
        fetch()
    line = [attnc, ROOT / "examples" / "30_voice.attn", "-o", BUILD / "voice.so", "--emit", "so,header,python"]
    subprocess.run([str(part) for part in line], check=True)
    sys.path[:0] = [str(BUILD), str(ROOT / "tests" / "fixtures")]
    import reference
    import tensors
    from voice import Model

    weights, _ = tensors.read(WEIGHTS)
    samples, speaks = sound(200)
    p = {name: array.astype(np.float64) for name, array in weights.items()}
    # A gate that is shut gives exp of much, and 1 / infinity.
    with np.errstate(over="ignore"):
        expected = reference.voice(p, 64, 256, samples)
    good = True
    with Model(str(BUILD / "voice.so"), weights=str(WEIGHTS)) as model:
        at_once = model.forward(samples)
        begin = model.forward(samples[:7])
        pieces = np.concatenate([begin, *[model.listen(samples[n : n + 1]) for n in range(7, len(samples))]])
    for what, result in (("the recording at once", at_once), ("in pieces", pieces)):
        off = np.abs(result - expected).max()
        good &= bool(off <= TOLERANCE)
        print(f"{'ok  ' if off <= TOLERANCE else 'FAIL'}  {what}: differs by {off:.1e}")
    speech, silence = np.median(at_once[speaks == 1]), np.median(at_once[speaks == 0])
    heard = speech > 0.5 > 0.2 > silence
    print(f"{'ok  ' if heard else 'FAIL'}  the voice is heard with {speech:.3f}, the pauses with {silence:.3f}")
    sys.exit(0 if good and heard else 1)


if __name__ == "__main__":
    main()
