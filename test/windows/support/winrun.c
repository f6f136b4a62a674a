/*
 * Runs a program with pipes of Windows for its input and output, and copies what it says to ours: Node does
 * not take pipes of Linux. `winrun [/console] program arguments`; returns what the program returns.
 * With /console the program has a console of its own, where a `c` on our input presses Ctrl-C, a `b` is
 * Ctrl-Break, and an `h` closes the console. Wine passes on the first one only. So the others come to the
 * program in the way that Windows brings them: as a thread in it, at CtrlRoutine, with the number of the event.
 */
#include <stdio.h>
#include <windows.h>

typedef struct {
  HANDLE from, to;
} Pump;

static DWORD WINAPI pump(LPVOID argument) {
  Pump *way = argument;
  char bytes[65536];
  DWORD count, written;
  while (ReadFile(way->from, bytes, sizeof bytes, &count, NULL) && count)
    for (DWORD at = 0; at < count; at += written)
      if (!WriteFile(way->to, bytes + at, count - at, &written, NULL)) return 1;
  return 0;
}

/* We are in the same console. */
static BOOL WINAPI ignore(DWORD event) {
  (void)event;
  return TRUE;
}

typedef struct {
  HANDLE input, program;
} Keyboard;

static void bring(HANDLE program, DWORD event) {
  FARPROC routine = GetProcAddress(GetModuleHandleW(L"kernelbase.dll"), "CtrlRoutine");
  LPVOID argument = (LPVOID)(ULONG_PTR)event;
  HANDLE thread = routine ? CreateRemoteThread(program, NULL, 0, (LPTHREAD_START_ROUTINE)routine, argument, 0, NULL) : NULL;
  if (thread) CloseHandle(thread);
  else fprintf(stderr, "winrun: no way to bring event %lu: %lu\n", event, GetLastError());
}

static DWORD WINAPI press(LPVOID argument) {
  Keyboard *keyboard = argument;
  char key;
  DWORD count;
  while (ReadFile(keyboard->input, &key, 1, &count, NULL) && count) {
    if (key == 'c') GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0);
    if (key == 'b') bring(keyboard->program, CTRL_BREAK_EVENT);
    if (key == 'h') bring(keyboard->program, CTRL_CLOSE_EVENT);
  }
  return 0;
}

/* The command line behind the name of this program. */
static LPWSTR rest(LPWSTR line) {
  int quoted = 0;
  while (*line && (quoted || *line != L' ')) {
    if (*line == L'"') quoted = !quoted;
    line++;
  }
  while (*line == L' ') line++;
  return line;
}

int wmain(void) {
  SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
  HANDLE in[2], out[2], err[2], threads[2];
  HANDLE input = GetStdHandle(STD_INPUT_HANDLE);
  HANDLE output = GetStdHandle(STD_OUTPUT_HANDLE), error = GetStdHandle(STD_ERROR_HANDLE);
  LPWSTR line = rest(GetCommandLineW());
  int console = wcsncmp(line, L"/console ", 9) == 0;
  if (console) {
    line = rest(line);
    FreeConsole();
    if (!AllocConsole()) return 127;
    SetConsoleCtrlHandler(ignore, TRUE);
  }
  if (!CreatePipe(&in[0], &in[1], &inherited, 0) || !CreatePipe(&out[0], &out[1], &inherited, 0) ||
      !CreatePipe(&err[0], &err[1], &inherited, 0))
    return 127;
  SetHandleInformation(in[1], HANDLE_FLAG_INHERIT, 0);
  SetHandleInformation(out[0], HANDLE_FLAG_INHERIT, 0);
  SetHandleInformation(err[0], HANDLE_FLAG_INHERIT, 0);
  STARTUPINFOW start = {sizeof start};
  start.dwFlags = STARTF_USESTDHANDLES;
  start.hStdInput = in[0];
  start.hStdOutput = out[1];
  start.hStdError = err[1];
  PROCESS_INFORMATION child;
  if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, 0, NULL, NULL, &start, &child)) {
    fprintf(stderr, "winrun: CreateProcess: %lu\n", GetLastError());
    return 127;
  }
  CloseHandle(in[0]);
  CloseHandle(in[1]);
  CloseHandle(out[1]);
  CloseHandle(err[1]);
  Pump ways[2] = {{out[0], output}, {err[0], error}};
  Keyboard keyboard = {input, child.hProcess};
  if (console) CloseHandle(CreateThread(0, 0, press, &keyboard, 0, 0));
  threads[0] = CreateThread(0, 0, pump, &ways[0], 0, 0);
  threads[1] = CreateThread(0, 0, pump, &ways[1], 0, 0);
  WaitForSingleObject(child.hProcess, INFINITE);
  WaitForMultipleObjects(2, threads, TRUE, 3000);
  DWORD code = 1;
  GetExitCodeProcess(child.hProcess, &code);
  return (int)code;
}
