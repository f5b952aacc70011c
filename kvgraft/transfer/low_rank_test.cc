#include "kvgraft/transfer/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kvgraft/core/random.h"

namespace kvgraft::transfer {
namespace {

using math::FloatMatrix;
using math::Matrix;
using math::Op;

constexpr size_t kInputs = 40, kOutputs = 60;

double Normal(Random* random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random->Unit();
  return sum;
}

// y = x W + c + noise, W of rank `rank`; inputs with large means, as keys have.
struct Planted {
  FloatMatrix x, y;
  Planted(size_t n, size_t rank, double noise, uint64_t seed) : x(n, kInputs), y(n, kOutputs) {
    Random map(77), rows(seed);  // the same map for every seed
    Matrix a(kInputs, rank), b(rank, kOutputs);
    for (size_t i = 0; i < kInputs; ++i) {
      for (size_t k = 0; k < rank; ++k) a.row(i)[k] = Normal(&map);
    }
    for (size_t k = 0; k < rank; ++k) {
      for (size_t j = 0; j < kOutputs; ++j) b.row(k)[j] = Normal(&map);
    }
    for (size_t t = 0; t < n; ++t) {
      std::vector<double> code(rank);
      for (size_t i = 0; i < kInputs; ++i) {
        const double v = Normal(&rows) * (1 + static_cast<double>(i % 5));
        x.row(t)[i] = static_cast<float>(v + (i % 7 == 0 ? 300 : 0));
        for (size_t k = 0; k < rank; ++k) code[k] += v * a.row(i)[k];
      }
      for (size_t j = 0; j < kOutputs; ++j) {
        double v = static_cast<double>(j) + noise * Normal(&rows);
        for (size_t k = 0; k < rank; ++k) v += code[k] * b.row(k)[j];
        y.row(t)[j] = static_cast<float>(v);
      }
    }
  }
};

PairMoments Moments(const Planted& rows, unsigned n_threads = 2) {
  PairMoments m(kInputs, kOutputs);
  EXPECT_TRUE(m.Add(rows.x.view(), rows.y.view(), n_threads).ok());
  return m;
}

// Two passes over all rows in double.
void ExpectTwoPassMoments(const PairMoments& m, const Planted& rows) {
  const size_t n = rows.x.rows();
  ASSERT_EQ(m.n, n);
  std::vector<double> mx(kInputs), my(kOutputs);
  for (size_t t = 0; t < n; ++t) {
    for (size_t i = 0; i < kInputs; ++i) mx[i] += double{rows.x.row(t)[i]} / static_cast<double>(n);
    for (size_t j = 0; j < kOutputs; ++j)
      my[j] += double{rows.y.row(t)[j]} / static_cast<double>(n);
  }
  for (size_t i = 0; i < kInputs; ++i) {
    EXPECT_NEAR(m.mean_x[i], mx[i], 1e-9 * (1 + std::abs(mx[i])));
    const auto expect = [&](double got, const FloatMatrix& other, const std::vector<double>& mean,
                            size_t k) {
      double sum = 0, size = 0;
      for (size_t t = 0; t < n; ++t) {
        const double term = (rows.x.row(t)[i] - mx[i]) * (other.row(t)[k] - mean[k]);
        sum += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(got, sum, 1e-6 * size) << i << " " << k;
    };
    for (size_t j = 0; j < kOutputs; j += 7) expect(m.xy.row(i)[j], rows.y, my, j);
    for (size_t k = 0; k <= i; ++k) expect(m.xx.row(i)[k], rows.x, mx, k);
  }
}

TEST(PairMoments, AreTheTwoPassMoments) {
  const Planted rows(5000, 3, 0.5, 1);  // chunks of 2,048, the last one short
  ExpectTwoPassMoments(Moments(rows), rows);
  PairMoments parts(kInputs, kOutputs);
  for (size_t at = 0; at < 5000; at += 700) {
    const size_t n = std::min<size_t>(700, 5000 - at);
    PairMoments part(kInputs, kOutputs);
    ASSERT_TRUE(
        part.Add(rows.x.view().Block(at, 0, n, kInputs), rows.y.view().Block(at, 0, n, kOutputs), 1)
            .ok());
    parts.Merge(part, 2);
  }
  ExpectTwoPassMoments(parts, rows);
}

TEST(PairMoments, ThreadsDoNotMatterAndBadNumbersAreRefused) {
  Planted rows(3000, 3, 0.5, 1);
  const PairMoments one = Moments(rows, 1), three = Moments(rows, 3);
  EXPECT_EQ(one.xx, three.xx);
  EXPECT_EQ(one.xy, three.xy);
  EXPECT_EQ(one.mean_x, three.mean_x);
  PairMoments m = one;
  rows.y.row(2999)[3] = std::nanf("");
  EXPECT_EQ(m.Add(rows.x.view(), rows.y.view(), 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(m.n, one.n);
  EXPECT_EQ(m.xx, one.xx);
}

LowRankMap Fit(const PairMoments& m, size_t rank, double lambda = 1e-8, unsigned n_threads = 2) {
  LowRankOptions options;
  options.rank = rank;
  options.lambda = lambda;
  options.n_threads = n_threads;
  auto map = FitLowRank(m, options);
  EXPECT_TRUE(map.ok()) << map.status().message();
  return std::move(map).value();
}

// A planted map of rank 5 is found by rank 5 and not by rank 4; a higher rank adds nothing.
TEST(LowRank, RecoversAPlantedMap) {
  const PairMoments fit = Moments(Planted(4000, 5, 0.01, 1));
  const PairMoments other = Moments(Planted(1500, 5, 0.01, 2));
  const auto score = [&](size_t rank) {
    return HeldOutErrors(Fit(fit, rank), other, 0, 2).R2(0, kOutputs);
  };
  EXPECT_LT(score(4), 0.98);
  EXPECT_GT(score(5), 0.99999);
  EXPECT_NEAR(score(6), score(5), 1e-6);
}

// The error from moments is the error over the rows.
TEST(LowRank, HeldOutErrorsAreThoseOfTheRows) {
  const LowRankMap map = Fit(Moments(Planted(4000, 5, 2.0, 1)), 3);
  const Planted rows(1000, 5, 2.0, 3);
  const Errors errors = HeldOutErrors(map, Moments(rows), 0, 2);
  for (size_t j = 0; j < kOutputs; j += 11) {
    double rss = 0;
    for (size_t t = 0; t < 1000; ++t) {
      double y = map.mean_y[j];
      for (size_t k = 0; k < 3; ++k) {
        double code = 0;
        for (size_t i = 0; i < kInputs; ++i) {
          code += (rows.x.row(t)[i] - map.mean_x[i]) * map.encoder.row(i)[k];
        }
        y += code * map.decoder.row(k)[j];
      }
      rss += (rows.y.row(t)[j] - y) * (rows.y.row(t)[j] - y);
    }
    EXPECT_NEAR(errors.rss[j], rss, 1e-5 * rss);
  }
}

TEST(LowRank, TheFirstColumnsAreTheLowerRank) {
  const PairMoments m = Moments(Planted(4000, 8, 0.5, 1));
  const LowRankMap eight = Fit(m, 8), three = Fit(m, 3), cut = eight.Truncated(3);
  Matrix a(kInputs, kOutputs), b(kInputs, kOutputs);
  math::Multiply(1.0, three.encoder.view(), Op::kAsIs, three.decoder.view(), Op::kAsIs, 0.0,
                 a.view(), 1);
  math::Multiply(1.0, cut.encoder.view(), Op::kAsIs, cut.decoder.view(), Op::kAsIs, 0.0, b.view(),
                 1);
  for (size_t i = 0; i < kInputs; ++i) {
    for (size_t j = 0; j < kOutputs; ++j) ASSERT_NEAR(a.row(i)[j], b.row(i)[j], 1e-6);
  }
}

// Weights say which outputs a scarce rank serves.
TEST(LowRank, WeightsDecideWhoseErrorsCount) {
  const PairMoments m = Moments(Planted(4000, 8, 0.5, 1));
  LowRankOptions options;
  options.rank = 2;
  options.weights.assign(kOutputs, 1.0);
  const Errors even = HeldOutErrors(FitLowRank(m, options).value(), m, 0, 1);
  for (size_t j = 0; j < 5; ++j) options.weights[j] = 100;
  const Errors first = HeldOutErrors(FitLowRank(m, options).value(), m, 0, 1);
  EXPECT_GT(first.R2(0, 5), even.R2(0, 5) + 0.1);
  EXPECT_LT(first.R2(5, kOutputs - 5), even.R2(5, kOutputs - 5));
}

TEST(LowRank, SomeOutputsOnly) {
  const PairMoments m = Moments(Planted(4000, 5, 0.5, 1));
  LowRankOptions options;
  options.rank = kInputs;  // full rank: outputs do not share anything
  options.first_output = 20;
  options.n_outputs = 10;
  const LowRankMap some = FitLowRank(m, options).value();
  const Errors of_some = HeldOutErrors(some, m, 20, 1);
  const Errors of_all = HeldOutErrors(Fit(m, kInputs, options.lambda), m, 0, 1);
  for (size_t j = 0; j < 10; ++j) {
    EXPECT_NEAR(of_some.rss[j], of_all.rss[20 + j], 1e-6 * of_all.rss[20 + j]);
  }
}

TEST(LowRank, TheSameInputsGiveTheSameBytes) {
  const PairMoments m = Moments(Planted(4000, 8, 0.5, 1));
  const LowRankMap one = Fit(m, 6, 1e-4, 1), again = Fit(m, 6, 1e-4, 3);
  EXPECT_EQ(one.encoder, again.encoder);
  EXPECT_EQ(one.decoder, again.decoder);
}

// An input that never varies, and two that are equal: the ridge or a jitter carries the fit.
TEST(LowRank, DependentInputsAreFitted) {
  Planted rows(4000, 5, 0.01, 1), other(1000, 5, 0.01, 2);
  for (Planted* p : {&rows, &other}) {
    for (size_t t = 0; t < p->x.rows(); ++t) {
      p->x.row(t)[3] = 7;
      p->x.row(t)[5] = p->x.row(t)[4];
    }
  }
  const PairMoments m = Moments(rows);
  for (const double lambda : {0.0, 1e-6}) {
    const LowRankMap map = Fit(m, 5, lambda);
    const double r2 = HeldOutErrors(map, Moments(other), 0, 1).R2(0, kOutputs);
    EXPECT_GT(r2, 0.8) << lambda;  // what the lost inputs carried is lost
    EXPECT_LT(r2, 0.99) << lambda;
  }
}

TEST(LowRank, RefusesWhatCannotBe) {
  const PairMoments m = Moments(Planted(100, 5, 0.5, 1));
  for (LowRankOptions bad : {LowRankOptions{.rank = 0}, LowRankOptions{.rank = kInputs + 1},
                             LowRankOptions{.rank = 2, .weights = {1, 2}},
                             LowRankOptions{.rank = 2, .first_output = kOutputs},
                             LowRankOptions{.rank = 2, .first_output = 50, .n_outputs = 11}}) {
    EXPECT_EQ(FitLowRank(m, bad).status().code(), Code::kInvalidArgument);
  }
  const PairMoments none(kInputs, kOutputs);
  EXPECT_EQ(FitLowRank(none, {.rank = 2}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace kvgraft::transfer
