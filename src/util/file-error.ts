const WORDS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file (ENOENT)',
  ENOTDIR: 'a part of the path is not a directory (ENOTDIR)',
  EACCES: 'permission denied (EACCES)',
  EISDIR: 'it is a directory',
  ELOOP: 'its symbolic links form a loop (ELOOP)',
};

/** Why a file cannot be read; the caller names the file. */
export function fileErrorText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code = '' } = error as NodeJS.ErrnoException;
  return WORDS[code] ?? error.message;
}

/** The same for a system error code; other texts are returned unchanged. */
export function fileCodeText(code: string): string {
  return WORDS[code] ?? code;
}
