import type { Node } from '../api/generated/globalv1/api.ts';
import type { GlobalService, GlobalState } from '../store/global-state.ts';
import type { Item } from './item.ts';
import {
  formatPath,
  positionAt,
  ProblemList,
  type LocalProblem,
  type Problems,
  type Segment,
} from './problem.ts';

/** A file's state, or its errors; and its warnings in both cases. */
export type Collected = {
  readonly warnings: Problems;
  /** Those of the warnings that were not known before. */
  readonly newWarnings: Problems;
  /** What to know the warnings by, wherever in the file they are by then. */
  readonly knownWarnings: ReadonlySet<string>;
} & (
  | { readonly ok: true; readonly state: GlobalState }
  /** There is at least one error, and nothing of the file is to be used. */
  | { readonly ok: false; readonly errors: Problems }
);

export interface CollectorOptions {
  /** The file. */
  readonly text: string;
  readonly maxProblems: number;
  readonly knownWarnings: ReadonlySet<string>;
}

/** Puts the parts of one file together, and finds services that occur twice. */
export class Collector {
  readonly maxProblems: number;
  readonly #text: string;
  readonly #errors: ProblemList;
  readonly #warnings: ProblemList;
  readonly #newWarnings: ProblemList;
  readonly #formerWarnings: ReadonlySet<string>;
  readonly #knownWarnings = new Set<string>();
  readonly #services = new Map<string, GlobalService>();
  /** Each service's first item: its index, and where its name is. */
  readonly #first = new Map<string, { readonly index: number; readonly nameAt: () => number }>();
  #items = 0;

  constructor({ text, maxProblems, knownWarnings }: CollectorOptions) {
    this.#text = text;
    this.maxProblems = maxProblems;
    this.#errors = new ProblemList(maxProblems);
    this.#warnings = new ProblemList(maxProblems);
    this.#newWarnings = new ProblemList(maxProblems);
    this.#formerWarnings = knownWarnings;
  }

  /** Adds errors outside the service items; there may be more of them than are given. */
  addErrors(problems: readonly LocalProblem[], total = problems.length): void {
    addAll(this.#errors, problems, total, [], 0);
  }

  /**
   * Adds the next service item. `start`: the offset in the file that the item's own are counted from.
   * `nameAt` finds the offset in the file of the service's name; it is seldom called.
   */
  addItem(item: Item, start: number, nameAt: () => number): void {
    const index = this.#items;
    this.#items += 1;
    const path = ['services', index];
    addAll(this.#errors, item.errors, item.errorCount, path, start);
    const { service } = item;
    if (service === undefined) return;
    if (item.warningCount > 0) this.#addWarnings(service.key, item, path, start);
    const former = this.#first.get(service.key);
    if (former === undefined) {
      this.#first.set(service.key, { index, nameAt });
      this.#services.set(service.key, service);
    } else if (this.#errors.full) {
      this.#errors.addUnlisted(1);
    } else {
      const { line } = positionAt(this.#text, former.nameAt());
      const see = `see services[${former.index}] in line ${line}`;
      const message = `duplicate service ${service.key} (${see})`;
      const problem = { offset: nameAt(), segments: ['service', 'name'], message };
      addAll(this.#errors, [problem], 1, path, 0);
    }
  }

  result(nodes: readonly Node[]): Collected {
    const warnings = {
      warnings: this.#warnings.in(this.#text),
      newWarnings: this.#newWarnings.in(this.#text),
      knownWarnings: this.#knownWarnings,
    };
    if (this.#errors.total > 0) {
      return { ok: false, ...warnings, errors: this.#errors.in(this.#text) };
    }
    const byName = new Map(nodes.map((node) => [node.name, node]));
    return { ok: true, ...warnings, state: { services: this.#services, nodes: byName } };
  }

  #addWarnings(
    key: string,
    { warnings, warningCount }: Item,
    path: readonly Segment[],
    start: number,
  ): void {
    addAll(this.#warnings, warnings, warningCount, path, start);
    const unlisted = warningCount - warnings.length;
    for (const problem of warnings) {
      if (this.#isNew(identityOf(key, problem)))
        addAll(this.#newWarnings, [problem], 1, path, start);
    }
    if (unlisted > 0 && this.#isNew(`${key} and ${unlisted} more`)) {
      this.#newWarnings.addUnlisted(unlisted);
    }
  }

  #isNew(identity: string): boolean {
    this.#knownWarnings.add(identity);
    return !this.#formerWarnings.has(identity);
  }
}

/** Without indexes, which differ whenever something comes or goes before it. */
function identityOf(key: string, { segments, message }: LocalProblem): string {
  const names = segments.filter((segment) => typeof segment === 'string');
  return `${key} ${names.join('.')} ${message}`;
}

function addAll(
  list: ProblemList,
  problems: readonly LocalProblem[],
  total: number,
  path: readonly Segment[],
  start: number,
): void {
  for (const { offset, segments, message } of problems) {
    list.add({ offset: start + offset, path: formatPath([...path, ...segments]), message });
  }
  list.addUnlisted(total - problems.length);
}
