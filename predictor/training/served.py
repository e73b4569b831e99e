"""The code file of a logged bundle: what ``mlflow models serve`` runs.

MLflow copies this file beside the bundle (models from code) and executes it, so nothing is
unpickled. Nothing else imports it: :func:`predictor.training.registry.fetch` takes the bundle
alone.
"""

from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext


class ServedBundle(PythonModel):
    """Answers kernel rows with the learned predictor of one bundle."""

    def load_context(self, context: PythonModelContext) -> None:
        """Open the bundle, which checks its digests first."""
        from predictor.bundle import open_bundle

        self.bundle = open_bundle(Path(context.artifacts["bundle"]))

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> Any:
        """Return the answer of each row of ``model_input``, columns as in the signature."""
        from predictor.training.serving_rows import predict_rows

        return predict_rows(self.bundle, model_input)


set_model(ServedBundle())
