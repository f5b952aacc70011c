#include "kvgraft/math/matrix.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kvgraft/core/random.h"

namespace kvgraft::math {
namespace {

template <typename T>
BasicMatrix<T> Noise(size_t rows, size_t cols, uint64_t seed) {
  BasicMatrix<T> out(rows, cols);
  Random random(seed);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) out.row(i)[j] = static_cast<T>(random.Unit() - 0.5);
  }
  return out;
}

template <typename T>
T At(const BasicMatrix<T>& m, Op op, size_t i, size_t j) {
  return op == Op::kAsIs ? m.row(i)[j] : m.row(j)[i];
}

// Sizes below, at and above a tile; against the definition, in double.
template <typename T>
void CompareWithTheDefinition(T tolerance) {
  for (const auto& [n, m, k] : {std::tuple{3, 5, 7}, {512, 2, 9}, {600, 530, 40}, {1, 1, 1}}) {
    for (const Op op_a : {Op::kAsIs, Op::kTransposed}) {
      for (const Op op_b : {Op::kAsIs, Op::kTransposed}) {
        const auto size = [](Op op, size_t rows, size_t cols, uint64_t seed) {
          return op == Op::kAsIs ? Noise<T>(rows, cols, seed) : Noise<T>(cols, rows, seed);
        };
        const auto a = size(op_a, n, k, 1), b = size(op_b, k, m, 2);
        auto c = Noise<T>(n, m, 3);
        const auto before = c;
        Multiply(T(2), a.view(), op_a, b.view(), op_b, T(0.5), c.view(), 2);
        for (size_t i = 0; i < c.rows(); i += 37) {
          for (size_t j = 0; j < c.cols(); ++j) {
            double sum = 0;
            for (size_t l = 0; l < static_cast<size_t>(k); ++l) {
              sum += double{At(a, op_a, i, l)} * At(b, op_b, l, j);
            }
            ASSERT_NEAR(c.row(i)[j], 2 * sum + 0.5 * before.row(i)[j], tolerance);
          }
        }
      }
    }
  }
}

TEST(Matrix, MultiplyIsTheDefinition) {
  CompareWithTheDefinition<double>(1e-13);
  CompareWithTheDefinition<float>(1e-5f);
}

TEST(Matrix, ThreadsDoNotMatter) {
  const auto a = Noise<float>(900, 300, 1), b = Noise<float>(300, 700, 2);
  FloatMatrix one(900, 700), three(900, 700);
  Multiply(1.0f, a.view(), Op::kAsIs, b.view(), Op::kAsIs, 0.0f, one.view(), 1);
  Multiply(1.0f, a.view(), Op::kAsIs, b.view(), Op::kAsIs, 0.0f, three.view(), 3);
  EXPECT_EQ(one, three);
}

// x'x of more rows than columns, and a little on the diagonal.
Matrix Definite(size_t n, uint64_t seed) {
  const Matrix x = Noise<double>(2 * n, n, seed);
  Matrix a(n, n);
  Multiply(1.0, x.view(), Op::kTransposed, x.view(), Op::kAsIs, 0.0, a.view(), 2);
  return a;
}

TEST(Matrix, CholeskyAndWhatIsSolvedWithIt) {
  for (const size_t n : {1u, 5u, 128u, 129u, 700u}) {
    const Matrix a = Definite(n, n);
    Matrix l = a;
    ASSERT_TRUE(Cholesky(l.view(), 2).ok());
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = i + 1; j < n; ++j) l.row(i)[j] = 0;
    }
    Matrix back(n, n);
    Multiply(1.0, l.view(), Op::kAsIs, l.view(), Op::kTransposed, 0.0, back.view(), 2);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) ASSERT_NEAR(back.row(i)[j], a.row(i)[j], 1e-11) << n;
    }
    const Matrix want = Noise<double>(n, 3, 4);
    Matrix b(n, 3);
    Multiply(1.0, a.view(), Op::kAsIs, want.view(), Op::kAsIs, 0.0, b.view(), 1);
    SolveLower(l.view(), Op::kAsIs, b.view(), 2);
    SolveLower(l.view(), Op::kTransposed, b.view(), 2);
    for (size_t i = 0; i < n; ++i) ASSERT_NEAR(b.row(i)[2], want.row(i)[2], 1e-6) << n;
  }
  Matrix bad = Definite(200, 5);
  bad.row(150)[150] = -1;
  EXPECT_EQ(Cholesky(bad.view(), 1).code(), Code::kInvalidArgument);
  Matrix nan = Definite(3, 5);
  nan.row(2)[0] = std::nan("");
  EXPECT_EQ(Cholesky(nan.view(), 1).code(), Code::kInvalidArgument);
}

// A matrix whose eigenvalues are known: they are found, and its vectors satisfy A v = lambda v.
TEST(Matrix, TopEigenvectorsOfAKnownSpectrum) {
  constexpr size_t kN = 300, kTop = 20;
  // Orthonormal columns by Gram and Schmidt over noise.
  Matrix q = Noise<double>(kN, kN, 11);
  for (size_t j = 0; j < kN; ++j) {
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t k = 0; k < j; ++k) {
        double dot = 0;
        for (size_t i = 0; i < kN; ++i) dot += q.row(i)[j] * q.row(i)[k];
        for (size_t i = 0; i < kN; ++i) q.row(i)[j] -= dot * q.row(i)[k];
      }
    }
    double norm = 0;
    for (size_t i = 0; i < kN; ++i) norm += q.row(i)[j] * q.row(i)[j];
    for (size_t i = 0; i < kN; ++i) q.row(i)[j] /= std::sqrt(norm);
  }
  Matrix scaled = q, a(kN, kN);
  const auto value = [](size_t j) { return 100.0 * std::pow(0.9, static_cast<double>(j)); };
  for (size_t i = 0; i < kN; ++i) {
    for (size_t j = 0; j < kN; ++j) scaled.row(i)[j] *= value(j);
  }
  Multiply(1.0, scaled.view(), Op::kAsIs, q.view(), Op::kTransposed, 0.0, a.view(), 2);
  const auto found = TopEigenvectors(a.view(), kTop, 12, 2);
  ASSERT_TRUE(found.ok()) << found.status().message();
  Matrix av(kN, kTop);
  Multiply(1.0, a.view(), Op::kAsIs, found->vectors.view(), Op::kAsIs, 0.0, av.view(), 2);
  for (size_t j = 0; j < kTop; ++j) {
    EXPECT_NEAR(found->values[j], value(j), 1e-8 * value(0)) << j;
    for (size_t i = 0; i < kN; ++i) {
      ASSERT_NEAR(av.row(i)[j], found->values[j] * found->vectors.row(i)[j], 1e-6) << j;
    }
  }
  const auto again = TopEigenvectors(a.view(), kTop, 12, 1);
  EXPECT_TRUE(again->vectors == found->vectors);
  EXPECT_EQ(TopEigenvectors(a.view(), kN + 1, 2, 1).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace kvgraft::math
