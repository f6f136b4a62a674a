import { Registry } from 'prom-client';
import { pipeline, Readable } from 'node:stream';
import { constants, createGzip } from 'node:zlib';
import type { IncomingHttpHeaders } from 'node:http';
import type { TextFormat } from './exposition.ts';

export interface ScrapeFormat {
  readonly text: TextFormat;
  readonly encoding: 'identity' | 'gzip';
}

/** The available format that a scraper prefers, by its headers. */
export function scrapeFormat(headers: IncomingHttpHeaders): ScrapeFormat {
  const accept = preferences(headers.accept);
  const best = (wanted: (each: Preference) => boolean): number =>
    Math.max(0, ...accept.filter(wanted).map(({ q }) => q));
  const open = best(({ name, version = '1.0.0' }) => name === OPENMETRICS && version === '1.0.0');
  const plain = best(({ name }) => name === 'text/plain');
  const encodings = preferences(headers['accept-encoding']);
  return {
    text: open > 0 && open >= plain ? 'openmetrics' : 'prometheus',
    encoding: encodings.some(({ name, q }) => name === 'gzip' && q > 0) ? 'gzip' : 'identity',
  };
}

const OPENMETRICS = 'application/openmetrics-text';

export function contentType({ text }: ScrapeFormat): string {
  return text === 'openmetrics'
    ? Registry.OPENMETRICS_CONTENT_TYPE
    : Registry.PROMETHEUS_CONTENT_TYPE;
}

interface Preference {
  readonly name: string;
  readonly version: string | undefined;
  readonly q: number;
}

/** The items of a header such as `Accept`. */
function preferences(header = ''): Preference[] {
  return header.split(',').map((item) => {
    const [name = '', ...parameters] = item.split(';').map((part) => part.trim().toLowerCase());
    const valueOf = (key: string): string | undefined =>
      parameters.find((each) => each.startsWith(`${key}=`))?.slice(key.length + 1);
    const q = Number(valueOf('q') ?? 1);
    return { name, version: valueOf('version'), q: Number.isNaN(q) ? 0 : q };
  });
}

/** Compresses outside the event loop: zlib has threads. Its fastest level makes a fifteenth of most pages. */
export async function* compressed(
  pieces: AsyncIterable<string>,
): AsyncGenerator<Uint8Array, void, void> {
  const gzip = createGzip({ level: constants.Z_BEST_SPEED });
  // An error of either ends the other, and reaches the loop below.
  pipeline(Readable.from(pieces, { objectMode: false }), gzip, () => undefined);
  yield* gzip as AsyncIterable<Uint8Array>;
}
