import type { ChangeOp } from '../api/ops.ts';
import { comparePaths } from '../api/paths.ts';
import { KpngError } from '../errors.ts';
import { isEqual, put } from '../util/compare.ts';

/** Limits of the state from a server, and of a change set before its Sync. */
export interface StateLimits {
  /** Services, endpoints (those without a service too) and nodes. */
  readonly maxEntries: number;
  /** Their estimated size in memory. Bytes. */
  readonly maxBytes: number;
}

export const DEFAULT_STATE_LIMITS: StateLimits = {
  maxEntries: 500_000,
  maxBytes: 512 * 1024 * 1024,
};

/** The effect of a change set on one entry. */
type Staged = object | typeof DELETED | typeof KEPT;
const DELETED = Symbol('deleted');
/** The server sent the entry in an invalid form: the old value stays. */
const KEPT = Symbol('kept');

type Entries<T = object> = ReadonlyMap<string, T>;
const NONE: Entries = new Map();

/** The effect of a change set on one table. */
export interface TableChange {
  /** `nodes`, `services`, or another one. */
  readonly name: string;
  /** The real differences; undefined: removed. */
  readonly changes: Entries<object | undefined>;
  /** The entries as they are now. Those of nodes and services are changed in place, others copied, in order of the key. */
  readonly entries: Entries;
  /** The keys that the change set has values for. */
  readonly given: readonly string[];
}

/**
 * A state of tables with entries, and an open change set. Neither changes the other before `commit`, so readers see only
 * complete states, and an aborted change set leaves no trace.
 *
 * Unchanged entries keep their objects. No value may change after it was staged: its size is computed again when it is
 * removed.
 */
export class StagedState {
  readonly #tables = new Map<string, Entries>(IN_PLACE.map((name) => [name, new Map()]));
  readonly #staged = new Map<string, Map<string, Staged>>();
  readonly #limits: StateLimits;
  /** Every entry named in the change set, including deleted ones. */
  readonly #stagedSize: Size = { ...NOTHING };
  /** The state with the next Sync. */
  readonly #nextSize: Size = { ...NOTHING };
  /** After a reset, all entries are unconfirmed until the next sync. */
  #resyncing = false;

  constructor(limits: StateLimits = DEFAULT_STATE_LIMITS) {
    this.#limits = limits;
  }

  /** Of the type that the caller applies there. */
  table<T extends object>(name: string): Entries<T> {
    return (this.#tables.get(name) ?? NONE) as Entries<T>;
  }

  /** Whether the change set has an invalid form of the entry. */
  protected isInvalid(table: string, key: string): boolean {
    return this.#staged.get(table)?.get(key) === KEPT;
  }

  /** The full data set follows: discards the open change set and marks every entry stale. */
  reset(): void {
    this.#discard();
    Object.assign(this.#nextSize, NOTHING);
    this.#resyncing = true;
  }

  /**
   * Adds an operation to the change set. An invalid one removes nothing, neither from the state nor from the change set.
   * Throws KPNG_STATE_TOO_LARGE if a limit is exceeded; the change set must then be discarded.
   */
  apply(op: ChangeOp): void {
    if (op.entry === undefined) return;
    const { table, key } = op.entry;
    const staged = this.#staged.get(table) ?? new Map<string, Staged>();
    this.#staged.set(table, staged);
    const before = this.#tables.get(table)?.get(key);
    const previous = staged.get(key);
    const given = op.kind === 'invalid' ? KEPT : (op.value ?? DELETED);
    if (given === KEPT && previous !== undefined) return;
    // Compared now: a large state would be compared all at once when the change set is complete.
    const value = before !== undefined && isEqual(before, given) ? before : given;
    staged.set(key, value);
    const path = ENTRY_BYTES + table.length + key.length;
    const settled = (each: Staged): Staged | undefined => (each === KEPT ? before : each);
    const was = previous === undefined ? (this.#resyncing ? undefined : before) : settled(previous);
    const is = settled(value);
    if (previous === undefined) this.#count(this.#stagedSize, 1, path);
    if (typeof was === 'object') this.#count(this.#nextSize, -1, -path - sizeOf(was));
    this.#count(this.#stagedSize, 0, sizeOf(value) - sizeOf(previous));
    if (typeof is === 'object') this.#count(this.#nextSize, 1, path + sizeOf(is));
  }

  /**
   * Applies the change set, table by table: nodes and services, then others that it names. After a reset, entries that it
   * does not name are removed.
   */
  *commit(): Generator<TableChange, void, undefined> {
    const stale = this.#resyncing ? this.#tables.keys() : [];
    for (const name of new Set([...IN_PLACE, ...this.#staged.keys(), ...stale])) {
      const staged = this.#staged.get(name) ?? new Map<string, Staged>();
      const before = this.table(name);
      const changes = new Map<string, object | undefined>();
      for (const [key, value] of staged) {
        if (value === DELETED ? before.has(key) : value !== KEPT && value !== before.get(key)) {
          changes.set(key, value === DELETED ? undefined : (value as object));
        }
      }
      for (const key of this.#resyncing ? before.keys() : []) {
        if (!staged.has(key)) changes.set(key, undefined);
      }
      let entries = before;
      if (IN_PLACE.includes(name)) {
        for (const [key, value] of changes) put(before as Map<string, object>, key, value);
      } else {
        entries = withChanges(before, changes);
        put(this.#tables, name, entries.size === 0 ? undefined : entries);
      }
      const given = [...staged].filter(([, value]) => typeof value === 'object');
      yield { name, changes, entries, given: given.map(([key]) => key) };
    }
    this.#discard();
  }

  #discard(): void {
    this.#staged.clear();
    Object.assign(this.#stagedSize, NOTHING);
    this.#resyncing = false;
  }

  #count(size: Size, entries: number, bytes: number): void {
    const { maxEntries, maxBytes } = this.#limits;
    size.entries += entries;
    size.bytes += bytes;
    if (size.entries <= maxEntries && size.bytes <= maxBytes) return;
    const limit =
      size.entries > maxEntries
        ? `${maxEntries} services, endpoints and nodes`
        : `${Math.round(maxBytes / 1024 / 1024)} MiB in memory`;
    throw new KpngError('KPNG_STATE_TOO_LARGE', `The server sent a state of more than ${limit}.`);
  }
}

/** Tables that may have very many entries: copies would cost more than a change. */
const IN_PLACE: readonly string[] = ['nodes', 'services'];

/** Overhead of an entry. Bytes. */
const ENTRY_BYTES = 128;

interface Size {
  entries: number;
  bytes: number;
}
const NOTHING: Readonly<Size> = { entries: 0, bytes: 0 };

/** Estimated size of a decoded message in memory: a few bytes on the wire can take many here. */
function sizeOf(value: unknown): number {
  if (typeof value === 'string') return 16 + value.length;
  if (typeof value !== 'object' || value === null) return 0;
  let bytes = 48;
  for (const key in value) bytes += 8 + sizeOf((value as Readonly<Record<string, unknown>>)[key]);
  return bytes;
}

/**
 * A copy with changes, in order of the key; the map itself if nothing differs. Undefined: removed. Unchanged keys are in
 * order already.
 */
export function withChanges<T>(
  entries: ReadonlyMap<string, T>,
  changes: ReadonlyMap<string, T | undefined>,
): ReadonlyMap<string, T> {
  if (changes.size === 0) return entries;
  const copy = new Map(entries);
  let isSorted = true;
  for (const [key, value] of changes) {
    isSorted &&= value === undefined || entries.has(key);
    put(copy, key, value);
  }
  return isSorted ? copy : new Map([...copy].sort(([a], [b]) => comparePaths(a, b)));
}
