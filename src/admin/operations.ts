import { KpngError } from '../errors.ts';

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
  /** One line for the index. */
  readonly summary: string;
  readonly access: Access;
  /** Names of the accepted inputs; any other is refused. */
  readonly inputs: readonly string[];
  /** A download of this name with text that is not JSON. Absent: JSON. */
  readonly download?: { readonly fileName: string; readonly type: string };
  /**
   * Returns plain data, or pieces of text. Throws KPNG_USAGE for bad input, KPNG_ADMIN_REFUSED for what cannot be
   * done. May stop and throw the signal's reason when no one waits for the response.
   */
  run(input: OperationInput, signal: AbortSignal): unknown;
}

/** The HTTP method that runs an operation. */
export function methodOf({ access }: Pick<Operation, 'access'>): 'GET' | 'POST' {
  return access === 'change' ? 'POST' : 'GET';
}

/** Throws KPNG_USAGE for unknown inputs. */
export function checkInput({ name, inputs }: Operation, input: OperationInput): void {
  for (const given of Object.keys(input)) {
    if (inputs.includes(given)) continue;
    const known = inputs.length === 0 ? 'it takes none' : `it takes ${inputs.join(', ')}`;
    throw new KpngError('KPNG_USAGE', `${name}: unknown input ${JSON.stringify(given)}; ${known}`);
  }
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
  throw new KpngError(
    'KPNG_USAGE',
    `${name} ${JSON.stringify(text)}: expected a whole number from ${min} to ${max}`,
  );
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
  throw new KpngError(
    'KPNG_USAGE',
    `${name} ${JSON.stringify(text)}: expected ${words.join(', ')}`,
  );
}
