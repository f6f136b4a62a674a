/** Large transfers both ways, one alone and several at once, compared by SHA-256. */
import { request, type IncomingMessage } from 'node:http';
import { once } from 'node:events';
import { pipeline } from 'node:stream/promises';
import { SEED } from '../../examples/support/endpoint.ts';
import { digestOf, digestOfStream, streamOf } from '../../examples/support/stream-bytes.ts';
import { sizeText, type Check, type CheckResult } from './check.ts';
import { ENDPOINTS } from './scene.ts';

/** Seed of what clients send. */
const CLIENT_SEED = 'client';
/** A transfer that takes longer has failed. Milliseconds. */
const TIME_LIMIT = 300_000;

/** How one transfer went: the digest at its far end, and the endpoint that served it. */
interface Transfer {
  readonly digest: string;
  readonly endpoint: string;
}

async function download(url: string): Promise<Transfer> {
  const outgoing = request(url, { agent: false, timeout: TIME_LIMIT });
  outgoing.end();
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  const { digest } = await digestOfStream(response);
  return { digest, endpoint: String(response.headers['x-endpoint']) };
}

async function upload(url: string, length: number): Promise<Transfer> {
  const outgoing = request(url, { method: 'PUT', agent: false, timeout: TIME_LIMIT });
  const answered = once(outgoing, 'response') as Promise<[IncomingMessage]>;
  const [[response]] = await Promise.all([
    answered,
    pipeline(streamOf(CLIENT_SEED, length), outgoing),
  ]);
  const digest = Buffer.concat(await response.toArray())
    .toString()
    .trim();
  return { digest, endpoint: String(response.headers['x-endpoint']) };
}

/** Size of each of several transfers at once, as a part of the large one. */
const PART = 1 / 16;
const AT_ONCE = 6;

async function evaluate(
  what: string,
  atOnce: number,
  length: number,
  wanted: string,
  begin: () => Promise<Transfer>,
): Promise<CheckResult> {
  const start = performance.now();
  const transfers = await Promise.all(Array.from({ length: atOnce }, begin));
  const seconds = (performance.now() - start) / 1000;
  const wrong = transfers.filter(({ digest }) => digest !== wanted).length;
  const served = new Set(transfers.map(({ endpoint }) => endpoint));
  const spread = served.size >= Math.min(transfers.length, ENDPOINTS.length);
  const speed = ((length * transfers.length) / seconds / 1e9).toFixed(2);
  return {
    ok: wrong === 0 && spread,
    text:
      `${what}: ${transfers.length} x ${sizeText(length)}, ${speed} GB/s, ` +
      `served by ${[...served].sort().join(', ')}; SHA-256 ${wrong === 0 ? 'equal' : `differs in ${wrong}`}`,
  };
}

function downloading(what: string, atOnce: number, part: number): Check {
  return async ({ host, ports }, { bytes }) => {
    const length = Math.ceil(bytes * part);
    const url = `http://${host}:${ports.http}/bytes/${length}`;
    return evaluate(what, atOnce, length, digestOf(SEED, length), () => download(url));
  };
}

function uploading(what: string, atOnce: number, part: number): Check {
  return async ({ host, ports }, { bytes }) => {
    const length = Math.ceil(bytes * part);
    const url = `http://${host}:${ports.http}/digest`;
    return evaluate(what, atOnce, length, digestOf(CLIENT_SEED, length), () => upload(url, length));
  };
}

export const downloads = downloading('one download', 1, 1);
export const uploads = uploading('one upload', 1, 1);
export const parallelDownloads = downloading('downloads at once', AT_ONCE, PART);
export const parallelUploads = uploading('uploads at once', AT_ONCE, PART);
