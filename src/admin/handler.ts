import { KpngError, messageOf } from '../errors.ts';
import {
  json,
  type HttpResponse,
  type HttpRequest,
  MAX_REQUEST_BYTES,
} from '../util/http-connections.ts';
import type { SerialQueue } from '../util/serial-queue.ts';

const PREFIX = '/v1/';

export interface ErrorBody {
  readonly error: { readonly code: string; readonly message: string };
}

/**
 * Answers an API request; undefined for any other path. `reading` runs one read operation at a time, so that many clients
 * need no more memory than one; `isTrusted`: the client may run every operation, as on the admin socket.
 */
export async function answerAdmin(
  request: HttpRequest,
  operations: readonly Operation[],
  reading: SerialQueue,
  isTrusted: boolean,
): Promise<HttpResponse | undefined> {
  const { method, path } = request;
  if (!path.startsWith(PREFIX)) return undefined;
  const name = path.slice(PREFIX.length);
  if (name === '') {
    const index = operations.map(({ name: each, summary, access, inputs }) => {
      return { path: `${PREFIX}${each}`, method: methodOf({ access }), summary, access, inputs };
    });
    return json(200, index);
  }
  const wanted = method === 'HEAD' ? 'GET' : method;
  const sameName = operations.filter((each) => each.name === name);
  const found = sameName.find((each) => methodOf(each) === wanted);
  if (found === undefined) {
    const [other] = sameName;
    return other === undefined
      ? failure(404, 'KPNG_USAGE', `there is no operation ${JSON.stringify(name)}`)
      : failure(405, 'KPNG_USAGE', `${name} needs the method ${methodOf(other)}`);
  }
  if (found.access !== 'read' && !isTrusted) {
    return failure(403, 'KPNG_ADMIN_REFUSED', `${name} is available on the admin socket only`);
  }
  const text = isTrusted ? await request.readBody() : '';
  if (text === undefined) {
    const message = `the request body is longer than ${MAX_REQUEST_BYTES} bytes`;
    return failure(413, 'KPNG_USAGE', message);
  }
  try {
    const input = inputOf(request.query, text, found);
    const { signal } = request;
    const run = async (): Promise<unknown> => {
      signal.throwIfAborted();
      return found.run(input, signal);
    };
    return found.respond(await (found.access === 'change' ? run() : reading.run(run)));
  } catch (error) {
    if (!(error instanceof KpngError)) throw error;
    return failure(error.code === 'KPNG_USAGE' ? 400 : 409, error.code, messageOf(error));
  }
}

/** The query and a JSON object of texts and numbers. Throws KPNG_USAGE, also for unknown inputs. */
function inputOf(query: string, body: string, { name, inputs }: Operation): OperationInput {
  const input = { ...Object.fromEntries(new URLSearchParams(query)), ...textsOf(body) };
  for (const given of Object.keys(input)) {
    if (inputs.includes(given)) continue;
    const known = inputs.length === 0 ? 'it takes none' : `it takes ${inputs.join(', ')}`;
    throw usage(`${name}: unknown input ${JSON.stringify(given)}; ${known}`);
  }
  return input;
}

function textsOf(body: string): Record<string, string> {
  if (body === '') return {};
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch (error) {
    throw usage(`the body is not JSON: ${messageOf(error)}`);
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) {
    throw usage('the body has to be a JSON object');
  }
  const texts: Record<string, string> = {};
  for (const [name, value] of Object.entries(parsed)) {
    if (typeof value !== 'string' && typeof value !== 'number') {
      throw usage(`${name}: expected a text or a number`);
    }
    texts[name] = String(value);
  }
  return texts;
}

export function usage(message: string): KpngError {
  return new KpngError('KPNG_USAGE', message);
}

export function failure(status: number, code: string, message: string): HttpResponse {
  const body: ErrorBody = { error: { code, message } };
  return json(status, body);
}

/** The input of an operation: names and texts, from a query or from a JSON body. */
export type OperationInput = Readonly<Record<string, string>>;

/**
 * Who may run an operation.
 *
 * - `read`: also clients of the status page; reveals nothing about clients of services. GET.
 * - `private`: clients of the admin socket. GET.
 * - `change`: clients of the admin socket; changes something. POST.
 */
export type Access = 'read' | 'private' | 'change';

/** An operation of the admin API, at `/v1/<name>`. */
export interface Operation {
  readonly name: string;
  readonly summary: string;
  readonly access: Access;
  /** Names of the accepted inputs; any other is refused. */
  readonly inputs: readonly string[];
  /**
   * Throws KPNG_USAGE for bad input, KPNG_ADMIN_REFUSED for what cannot be done. May stop and throw the signal's reason
   * when no one waits for the response.
   */
  run(input: OperationInput, signal: AbortSignal): unknown;
  /** Makes the response of what `run` returned. */
  respond(result: unknown): HttpResponse;
}

/** An operation from its access, its name and its inputs, separated by blanks. */
export function operation<Result>(
  spec: string,
  summary: string,
  run: (input: OperationInput, signal: AbortSignal) => Result,
  respond: (result: Awaited<Result>) => HttpResponse = (result) => json(200, result),
): Operation {
  const [access, name = '', ...inputs] = spec.split(' ');
  return { name, summary, access: access as Access, inputs, run, respond };
}

function methodOf({ access }: Pick<Operation, 'access'>): 'GET' | 'POST' {
  return access === 'change' ? 'POST' : 'GET';
}

/** A whole number from the input, or the default. Throws KPNG_USAGE when it is not a number or out of bounds. */
export function numberOf(
  input: OperationInput,
  name: string,
  { min, max, byDefault }: Readonly<Record<'min' | 'max' | 'byDefault', number>>,
): number {
  const text = input[name];
  if (text === undefined || text === '') return byDefault;
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw usage(`${name} ${JSON.stringify(text)}: expected a whole number from ${min} to ${max}`);
}

/** One of the given words from the input; default: the first. Throws KPNG_USAGE for any other. */
export function wordOf<Word extends string>(
  input: OperationInput,
  name: string,
  words: readonly [Word, ...Word[]],
): Word {
  const text = input[name];
  if (text === undefined || text === '') return words[0];
  const word = words.find((each) => each === text);
  if (word !== undefined) return word;
  throw usage(`${name} ${JSON.stringify(text)}: expected ${words.join(', ')}`);
}
