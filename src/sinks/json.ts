import { itemJson } from '../api/json.ts';
import type { LocalChange, LocalSink, LocalView } from '../store/local-view.ts';

/** Writes text; resolves when there is room for more. */
export type WriteText = (text: string) => Promise<void>;

/** Lines are collected up to about this many characters, so that a large state takes few writes. */
const CHUNK = 64 * 1024;

/**
 * Prints the whole state at every Sync as kpng-json does: one line of JSON for each service, in path order, without
 * separators between Syncs, and nothing for an empty state.
 */
export class JsonSink implements LocalSink {
  readonly #write: WriteText;

  constructor(write: WriteText) {
    this.#write = write;
  }

  async sync({ view }: LocalChange): Promise<void> {
    for (const piece of stateJson(view)) await this.#write(piece);
  }
}

/** The state as kpng-json prints it, in pieces of whole lines. */
export function* stateJson(view: LocalView): Generator<string, void, void> {
  let text = '';
  for (const { service, endpoints } of view.entries()) {
    text += `${itemJson(service, endpoints.values())}\n`;
    if (text.length < CHUNK) continue;
    yield text;
    text = '';
  }
  if (text !== '') yield text;
}
