import { isUtf8 } from 'node:buffer';
import { positionAt, type Problem } from './problem.ts';

/** The text of a file, or why it has none. */
export type Decoded =
  { readonly ok: true; readonly text: string } | { readonly ok: false; readonly problem: Problem };

/** Decodes UTF-8, with or without a byte order mark. */
export function decodeText(bytes: Uint8Array): Decoded {
  const text = new TextDecoder().decode(bytes);
  if (isUtf8(bytes)) return { ok: true, text };
  const at = positionAt(text, text.indexOf('\uFFFD'));
  return { ok: false, problem: { ...at, path: '', message: 'the file is not UTF-8 text' } };
}
