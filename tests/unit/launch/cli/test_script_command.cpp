#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "launch/cli/script.h"
#include "launch/cli/script_command.h"
#include "own_folder.h"

namespace tarantella::launch {
namespace {

namespace fs = std::filesystem;

class CommandTest : public OwnFolder {
 protected:
  std::string file(const std::string& name, const std::string& text, bool executable = false) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    if (executable) fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }
};

TEST_F(CommandTest, PythonBesideTheExecutableComesFirst) {
  const std::string script = file("a.py", "");
  const std::string beside = file("bin/python3", "", true);
  file("path/python3", "", true);
  const auto command = command_for(script, {"x y"}, {}, folder_ / "bin", folder_ / "path");
  EXPECT_EQ(command.value().program, beside);
  EXPECT_EQ(command.value().argv, (std::vector<std::string>{beside, script, "x y"}));
}

TEST_F(CommandTest, PythonInPathComesNext) {
  const std::string script = file("a.py", "");
  file("first/python3", "");  // not executable
  const std::string python = file("second/python3", "", true);
  const std::string path =
      (folder_ / "none").string() + ":" + (folder_ / "first").string() + "::" + (folder_ / "second").string();
  EXPECT_EQ(command_for(script, {}, {}, folder_, path).value().program, python);
  EXPECT_FALSE(command_for(script, {}, {}, folder_, "").ok());
}

TEST_F(CommandTest, ABrokenPythonBesideTheExecutableIsNotReplaced) {
  const std::string script = file("a.py", "");
  file("path/python3", "", true);
  const auto message = [&] {
    return command_for(script, {}, {}, folder_ / "bin", folder_ / "path").status().message();
  };
  const std::string bin = (folder_ / "bin").string();
  const std::string cure = "; create this environment again, or name a Python with --python-interpreter";
  file("bin/python3", "");
  EXPECT_EQ(message(), text("'", bin, "/python3' is not a program (chmod +x?)", cure));
  fs::remove(folder_ / "bin/python3");
  fs::create_symlink("/no/such/python", folder_ / "bin/python3");
  EXPECT_EQ(message(), text("'", bin,
                            "/python3' leads to '/no/such/python', which cannot be run (was that Python "
                            "upgraded or removed?)",
                            cure));
  fs::remove(folder_ / "bin/python3");
  EXPECT_EQ(message(), "");
  file("pyvenv.cfg", "");
  EXPECT_EQ(message(), text("the virtual environment of '", bin, "' has no python3", cure));
}

TEST_F(CommandTest, AnInterpreterRunsAnyScript) {
  const std::string script = file("run", "#!/bin/sh\n", true);
  const std::string tool = file("path/my tool", "", true);
  file("path/tool", "", true);
  const auto command = command_for(script, {"x"}, "tool  --flag", "", folder_ / "path");
  EXPECT_EQ(command.value().program, folder_ / "path/tool");
  EXPECT_EQ(command.value().argv, (std::vector<std::string>{folder_ / "path/tool", "--flag", script, "x"}));
  EXPECT_EQ(command_for(script, {}, tool, "", "").value().argv, (std::vector<std::string>{tool, script}));
  for (const char* wrong : {"none", "./none", " ", "/"}) {
    EXPECT_EQ(command_for(script, {}, wrong, "", folder_).status().message(),
              text("option '--python-interpreter' names no program: '", wrong, "'"));
  }
}

TEST_F(CommandTest, WithoutAnInterpreterTheScriptIsAProgram) {
  const std::string program = file("train",
                                   "\x7f"
                                   "ELF",
                                   true);
  EXPECT_EQ(command_for(program, {"x"}, "", "", "").value().argv, (std::vector<std::string>{program, "x"}));
  EXPECT_EQ(command_for(file("a.py", ""), {}, "", "", "").status().code(), Code::kSystem);
  EXPECT_EQ(command_for("-m", {"module"}, "", "", "").status().code(), Code::kInvalidArgument);
}

TEST_F(CommandTest, ExecutableWithHashBangIsItsOwnProgram) {
  const std::string script = file("run", "#!/bin/sh\n", true);
  EXPECT_EQ(command_for(script, {"x"}, {}, "", "").value().argv, (std::vector<std::string>{script, "x"}));
  EXPECT_FALSE(command_for(file("data", "no mark", true), {}, {}, "", "").ok());
  EXPECT_FALSE(command_for(file("text", "#!/bin/sh\n"), {}, {}, "", "").ok());
  EXPECT_FALSE(command_for(file("empty", "", true), {}, {}, "", "").ok());
}

TEST_F(CommandTest, RefusesScriptsThatNobodyCanRun) {
  EXPECT_TRUE(check_script(file("a.py", "")).ok());
  EXPECT_EQ(check_script(folder_).code(), Code::kInvalidArgument);
  EXPECT_EQ(check_script("/dev/null").code(), Code::kInvalidArgument);
  EXPECT_EQ(check_script("/no/such").message(), "cannot read script '/no/such': No such file or directory");
}

}  // namespace
}  // namespace tarantella::launch
