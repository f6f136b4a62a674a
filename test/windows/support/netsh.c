/*
 * A netsh.exe for tests: writes its arguments into a file, waits for the answer that the test gives, and
 * says and returns that. The folder is in the variable KPNG_NETSH_SPOOL. Without an answer it fails, so
 * that no test passes because nothing was done.
 */
#include <stdio.h>
#include <windows.h>

#define NO_SPOOL 97
#define NO_ANSWER 98
#define PATIENCE_MS 120000

static void put(FILE *file, const wchar_t *text) {
  char bytes[65536];
  int count = WideCharToMultiByte(CP_UTF8, 0, text, -1, bytes, sizeof bytes, NULL, NULL);
  fputc('"', file);
  for (int i = 0; i < count - 1; i++) {
    unsigned char c = bytes[i];
    if (c == '"' || c == '\\') fprintf(file, "\\%c", c);
    else if (c < 32) fprintf(file, "\\u%04x", c);
    else fputc(c, file);
  }
  fputc('"', file);
}

int wmain(int argc, wchar_t **argv) {
  wchar_t spool[MAX_PATH], draft[MAX_PATH + 64], request[MAX_PATH + 64], answer[MAX_PATH + 64];
  DWORD length = GetEnvironmentVariableW(L"KPNG_NETSH_SPOOL", spool, MAX_PATH);
  if (length == 0 || length >= MAX_PATH) return NO_SPOOL;
  DWORD id = GetCurrentProcessId(), tick = GetTickCount();
  swprintf(draft, MAX_PATH + 64, L"%ls\\%lu-%lu.draft", spool, tick, id);
  swprintf(request, MAX_PATH + 64, L"%ls\\%lu-%lu.request", spool, tick, id);
  swprintf(answer, MAX_PATH + 64, L"%ls\\%lu-%lu.answer", spool, tick, id);
  FILE *file = _wfopen(draft, L"wb");
  if (!file) return NO_SPOOL;
  fputc('[', file);
  for (int i = 1; i < argc; i++) {
    if (i > 1) fputc(',', file);
    put(file, argv[i]);
  }
  fputs("]\n", file);
  fclose(file);
  /* Unchecked: Wine reports a failure if the test removes the renamed file before Wine resolves its new name. */
  MoveFileW(draft, request);
  for (int waited = 0; waited < PATIENCE_MS; waited += 5) {
    FILE *given = _wfopen(answer, L"rb");
    if (given) {
      int code = NO_ANSWER, c;
      if (fscanf(given, "%d", &code) != 1) code = NO_ANSWER;
      fgetc(given);
      while ((c = fgetc(given)) != EOF) putchar(c);
      fclose(given);
      return code;
    }
    Sleep(5);
  }
  return NO_ANSWER;
}
