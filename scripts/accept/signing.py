"""A signature of acceptance.json by a key of the user's, made and checked by openssl."""
import pathlib
import shutil
import subprocess


class Signer:
    """@param key file of a private key in PEM; the signature goes to FILE.sig, the public key to
    FILE.pub.pem. Throws ValueError, with a sentence, for what cannot sign."""

    def __init__(self, key):
        self.key = key
        if shutil.which("openssl") is None:
            raise FileNotFoundError("--sign: openssl is not in PATH")
        self.public = self.openssl("pkey", "-in", key, "-pubout")

    def openssl(self, *words):
        done = subprocess.run(["openssl", *map(str, words)], capture_output=True, check=False)
        if done.returncode != 0:
            why = (done.stderr.decode(errors="replace").strip().splitlines() or ["no reason"])[0]
            raise ValueError(f"--sign {self.key}: openssl cannot sign with it: {why}")
        return done.stdout

    def sign(self, path):
        """@return the command that checks the signature of the file"""
        path = pathlib.Path(path)
        signature, public = (path.with_name(path.name + end) for end in (".sig", ".pub.pem"))
        self.openssl("dgst", "-sha256", "-sign", self.key, "-out", signature, path)
        public.write_bytes(self.public)
        return f"openssl dgst -sha256 -verify {public} -signature {signature} {path}"
