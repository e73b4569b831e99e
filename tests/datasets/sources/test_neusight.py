from pathlib import Path

import pytest

from predictor.datasets.kernel_schema import COLUMNS, validate
from predictor.datasets.sources import neusight
from predictor.spec.errors import InputError

MATRIX = ("OPName,Latency,Device,Torch Version,CUDNN Version,Kernel Name,Warps per SM,Grid x,"
          "CUDA Version,Kernels,B,M,N,K\n")
VECTOR = "OPName,Latency,Device,Torch Version,Kernel Name,CUDA Version,B,H,large\n"


def write(path: Path, header: str, *rows: str) -> Path:
    path.write_text(header + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def test_n_is_the_contraction_and_k_the_width_of_the_output(tmp_path: Path) -> None:
    file = write(tmp_path / "bmm.csv", MATRIX,
                 "bmm,0.5,NVIDIA L4,p2.1.0,8902,sgemm_nn,1,2,cu121,;sgemm_nn,16,96,64,32")
    frame = validate(neusight.read(file))
    row = frame.iloc[0]
    assert list(frame.columns) == list(COLUMNS)
    assert (row["op"], row["batch"], row["m"], row["n"], row["k"]) == ("bmm", 16, 96, 32, 64)
    assert row["latency_s"] == pytest.approx(0.5e-3)
    assert (row["gpu"], row["software"], row["version"]) == ("l4", "torch", "2.1.0")
    assert (row["impl"], row["timing_kind"], row["licence"]) == ("sgemm_nn", "event", "MIT")
    assert (row["dtype"], row["pass"], row["source"]) == ("fp32", "fwd", "neusight")


def test_linear_folds_its_batch_into_the_tokens(tmp_path: Path) -> None:
    file = write(tmp_path / "linear.csv", MATRIX,
                 "linear,2.0,Tesla T4,p2.1.0,8902,sgemm_tn,1,2,cu121,;sgemm_tn,4,128,256,512")
    row = neusight.read(file).iloc[0]
    assert row["op"] == "linear_bias"
    assert (row["batch"], row["m"], row["n"], row["k"]) == (1, 512, 512, 256)


def test_folder_takes_repeated_measurements_once(tmp_path: Path) -> None:
    softmax = 'VECsoftmax,0.7,Tesla V100-PCIE-32GB,p2.1.0,"soft<4, float>",cu121,2048,1600,True'
    write(tmp_path / "vec.csv", VECTOR, softmax,
          "ln,0.3,Tesla V100-PCIE-32GB,p2.1.0,layer_norm,cu121,100,20,False",
          "add,0.2,Tesla P4,p2.1.0,add,cu121,100,20,False")
    write(tmp_path / "softmax.csv", VECTOR, softmax)
    frame = neusight.read(tmp_path)
    # The P4 is not in the catalogue.
    assert list(zip(frame["op"], frame["m"], frame["n"], strict=True)) == [
        ("softmax", 2048, 1600), ("layernorm", 100, 20)]
    assert frame["batch"].isna().all()
    assert frame["k"].isna().all()
    assert list(frame["file"]) == ["vec.csv", "vec.csv"]
    assert frame["impl"][0] == "soft<4, float>"


def test_unknown_operation_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "conv.csv", VECTOR, "conv,1,Tesla T4,p2.1.0,x,cu121,1,1,False",
                 "dropout,1,Tesla T4,p2.1.0,x,cu121,1,1,False")
    with pytest.raises(InputError, match="unknown operation conv, dropout"):
        neusight.read(file)


def test_absent_columns_and_files_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "bmm.csv", "a,b\n", "1,2")
    with pytest.raises(InputError, match="lacks the columns B, Device, Latency, OPName"):
        neusight.read(file)
    file = write(tmp_path / "linear.csv", VECTOR, "linear,1,Tesla T4,p2.1.0,x,cu121,1,1,False")
    with pytest.raises(InputError, match="lacks the columns K, M, N"):
        neusight.read(file)
    file = write(tmp_path / "ln.csv", MATRIX, "ln,1,Tesla T4,p2.1.0,8902,x,1,2,cu121,;x,1,1,1,1")
    with pytest.raises(InputError, match="lacks the columns H;"):
        neusight.read(file)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match=r"none of bmm, .*ln\.csv"):
        neusight.read(tmp_path / "nothing")
