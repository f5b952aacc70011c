#include "kvgraft/store/catalog.h"

#include <sqlite3.h>

#include "kvgraft/store/testing.h"

namespace kvgraft::store {
namespace {

class CatalogTest : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    path_ = base_ + "/catalog.sqlite";
  }
  void Sql(const char* sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
  }
  std::string path_;
};

CatalogRow Row(const std::string& id, uint64_t n_tokens) {
  return {.id = id,
          .file_bytes = 7,
          .n_tokens = n_tokens,
          .n_image_tokens = n_tokens,
          .compat_id = "c",
          .tokens_sha256 = "h" + std::to_string(n_tokens),
          .tier = "exact",
          .model_name = "it's \"quoted\"; DROP TABLE artifacts;--",
          .created = "t",
          .parent = "p"};
}

TEST_F(CatalogTest, KeepsRows) {
  Result<std::unique_ptr<Catalog>> made = Catalog::Create(path_);
  KVG_ASSERT_OK(made);
  Catalog& catalog = **made;
  KVG_ASSERT_OK(catalog.Apply({Row("a", 3), Row("b", 9), Row("c", 9)}, {}));
  EXPECT_EQ(catalog.Get("a")->value(), Row("a", 3));
  EXPECT_FALSE(catalog.Get("x")->has_value());
  EXPECT_EQ(*catalog.TokenCounts("c", "exact", 100), (std::vector<uint64_t>{9, 3}));
  EXPECT_EQ(*catalog.TokenCounts("c", "exact", 8), (std::vector<uint64_t>{3}));
  EXPECT_TRUE(catalog.TokenCounts("c", "moved", 100)->empty());
  EXPECT_EQ(*catalog.IdsByTokens("c", "exact", 9, "h9"), (std::vector<std::string>{"b", "c"}));
  KVG_ASSERT_OK(catalog.Apply({Row("a", 4)}, {"b"}));
  EXPECT_EQ(catalog.All()->size(), 2u);
  EXPECT_EQ(catalog.Get("a")->value().n_tokens, 4u);
  EXPECT_EQ(ModeOf(path_), 0600u);

  Result<std::unique_ptr<Catalog>> again = Catalog::Open(path_);
  KVG_ASSERT_OK(again);
  EXPECT_EQ((*again)->All()->size(), 2u);
}

TEST_F(CatalogTest, RefusesWhatIsNotACatalog) {
  EXPECT_EQ(CodeOf(Catalog::Open(path_)), Code::kCorrupt);  // missing
  std::ofstream(path_) << std::string(5000, 'x');
  EXPECT_EQ(CodeOf(Catalog::Open(path_)), Code::kCorrupt);
  std::ofstream(path_, std::ios::trunc) << "";
  EXPECT_EQ(CodeOf(Catalog::Open(path_)), Code::kCorrupt);  // empty: version 0
  KVG_ASSERT_OK(Catalog::Create(path_));
  Sql("PRAGMA user_version = 2");
  EXPECT_EQ(CodeOf(Catalog::Open(path_)), Code::kCorrupt);
  KVG_ASSERT_OK(Catalog::Create(path_));
  Sql("DROP TABLE artifacts");
  EXPECT_EQ(CodeOf(Catalog::Open(path_)), Code::kCorrupt);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/etc/passwd", path_);
  EXPECT_EQ(CodeOf(Catalog::Open(path_)), Code::kCorrupt);
}

TEST_F(CatalogTest, SeesThatAnotherProcessMadeItAgain) {
  Result<std::unique_ptr<Catalog>> made = Catalog::Create(path_);
  KVG_ASSERT_OK(made);
  EXPECT_TRUE((*made)->IsCurrent());
  KVG_ASSERT_OK(Catalog::Create(path_));
  EXPECT_FALSE((*made)->IsCurrent());
  std::filesystem::remove(path_);
  EXPECT_FALSE((*made)->IsCurrent());
}

// A damaged page in the middle is found at Open, or by the query that meets it, as kCorrupt.
TEST_F(CatalogTest, DamagedPagesNeverGiveAnotherError) {
  {
    Result<std::unique_ptr<Catalog>> made = Catalog::Create(path_);
    KVG_ASSERT_OK(made);
    std::vector<CatalogRow> rows;
    for (int i = 0; i < 500; ++i) rows.push_back(Row("id" + std::to_string(i), 1000 + i));
    KVG_ASSERT_OK((*made)->Apply(rows, {}));
  }
  const auto size = std::filesystem::file_size(path_);
  ASSERT_GT(size, 20'000u);
  std::filesystem::copy_file(path_, path_ + ".good");
  int refused = 0;
  for (uint64_t page = 0; page < size / 4096; ++page) {
    std::filesystem::copy_file(path_ + ".good", path_,
                               std::filesystem::copy_options::overwrite_existing);
    Overwrite(path_, page * 4096, std::string(2048, '\x5a'));
    Result<std::unique_ptr<Catalog>> opened = Catalog::Open(path_);
    if (!opened.ok()) {
      EXPECT_EQ(opened.status().code(), Code::kCorrupt) << opened.status().message();
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace kvgraft::store
