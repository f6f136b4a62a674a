import { itemJson } from '../api/json.ts';
import type { LocalChange, LocalSink } from '../store/local-view.ts';

/** Writes text; resolves when there is room for more. */
export type WriteText = (text: string) => Promise<void>;

/** Lines are gathered up to about this many characters, so that a large state is few writes. */
const CHUNK = 64 * 1024;

/**
 * Prints the whole state at every Sync as kpng-json does: one line of JSON for each service, in path
 * order, nothing between one Sync and the next, and nothing at all for an empty state.
 */
export class JsonSink implements LocalSink {
  readonly #write: WriteText;

  constructor(write: WriteText) {
    this.#write = write;
  }

  async sync({ view }: LocalChange): Promise<void> {
    let text = '';
    for (const { service, endpoints } of view.entries()) {
      text += `${itemJson(service, endpoints.values())}\n`;
      if (text.length < CHUNK) continue;
      await this.#write(text);
      text = '';
    }
    if (text !== '') await this.#write(text);
  }
}
