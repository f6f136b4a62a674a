/**
 * Joins arguments into one text in the way that Windows programs split it: in quotes if there is a blank, with a backslash
 * before each quote, and backslashes before a quote doubled.
 */
export function commandLine(args: readonly string[]): string {
  return args.map(quoted).join(' ');
}

function quoted(arg: string): string {
  if (/^[^\s"]+$/.test(arg)) return arg;
  const escaped = arg.replaceAll(/(\\*)"/g, String.raw`$1$1\"`).replace(/(\\+)$/, '$1$1');
  return `"${escaped}"`;
}
