#pragma once

#include <stdlib.h>

#include <string>

/// Secrets in the environment, as sites and their users spell them.
namespace stowage::results::test {

inline constexpr const char* kSecret = "s3cr3t-of-a-user";

/// Sets variables with secrets, and OMP_SCHEDULE, which may be stored.
inline void plant_secrets() {
  for (const char* name : {"NCCL_AUTH",
                           "NCCL_passwd",
                           "STOWAGE_PASS",
                           "STOWAGE_CREDENTIALS",
                           "STOWAGE_API_TOKEN",
                           "UCX_PSK",
                           "UCX_IB_AUTH",
                           "ucx_ib_passphrase",
                           "OMP_SECRET",
                           "SLURM_CRED",
                           "SLURM_JWT",
                           "SLURM_JOB_COMMENT",
                           "OMPI_MCA_password",
                           "OMPI_MCA_btl_tcp_key",
                           "OMPI_MCA_sec_token",
                           "OMPI_MCA_orte_hnp_uri",
                           "PMIX_SERVER_URI41",
                           "PMIX_MCA_psec_key",
                           "CUDA_API_KEY",
                           "HF_TOKEN",
                           "AWS_SECRET_ACCESS_KEY"})
    setenv(name, kSecret, 1);
  const std::string secret = kSecret;
  setenv("NCCL_NET_PLUGIN", ("user:" + secret + "@host").c_str(), 1);
  setenv("UCX_NET_DEVICES", ("tcp://" + secret + ":55113").c_str(), 1);
  setenv("OMPI_MCA_pml", ("https://" + secret).c_str(), 1);
  setenv("OMP_SCHEDULE", "static", 1);
}

}  // namespace stowage::results::test
