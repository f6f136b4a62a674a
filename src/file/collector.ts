import type { Node } from '../api/generated/globalv1/api.ts';
import type { GlobalService, GlobalState } from '../store/global-state.ts';
import type { Item } from './item.ts';
import type { FileLimits } from './limits.ts';
import {
  formatPath,
  ProblemList,
  type LocalProblem,
  type Problems,
  type Segment,
} from './problem.ts';

/** A file's state, or its errors; and its warnings in both cases. */
export type Collected = { readonly warnings: Problems } & (
  | { readonly ok: true; readonly state: GlobalState }
  /** There is at least one error, and nothing of the file is to be used. */
  | { readonly ok: false; readonly errors: Problems }
);

/** Puts the parts of one file together, and finds services that occur twice. */
export class Collector {
  readonly maxProblems: number;
  readonly #errors: ProblemList;
  readonly #warnings: ProblemList;
  readonly #services = new Map<string, GlobalService>();
  /** Index and line of each service's first item. */
  readonly #first = new Map<string, { readonly index: number; readonly line: number }>();
  #items = 0;

  constructor({ maxProblems }: FileLimits) {
    this.maxProblems = maxProblems;
    this.#errors = new ProblemList(maxProblems);
    this.#warnings = new ProblemList(maxProblems);
  }

  /** Adds errors outside the service items; there may be more of them than are given. */
  addErrors(problems: readonly LocalProblem[], total = problems.length): void {
    addAll(this.#errors, problems, total, [], 0);
  }

  /** Adds the next service item; `linesBefore` is what its lines are counted from. */
  addItem(item: Item, linesBefore: number): void {
    const index = this.#items;
    this.#items += 1;
    const path = ['services', index];
    addAll(this.#errors, item.errors, item.errorCount, path, linesBefore);
    addAll(this.#warnings, item.warnings, item.warningCount, path, linesBefore);
    const { service, nameAt } = item;
    if (service === undefined) return;
    const former = this.#first.get(service.key);
    if (former === undefined) {
      this.#first.set(service.key, { index, line: nameAt.line + linesBefore });
      this.#services.set(service.key, service);
      return;
    }
    const see = `see services[${former.index}] in line ${former.line}`;
    const message = `duplicate service ${service.key} (${see})`;
    const problem = { at: nameAt, segments: ['service', 'name'], message };
    addAll(this.#errors, [problem], 1, path, linesBefore);
  }

  result(nodes: readonly Node[]): Collected {
    const warnings = this.#warnings;
    if (this.#errors.total > 0) return { ok: false, warnings, errors: this.#errors };
    const byName = new Map(nodes.map((node) => [node.name, node]));
    return { ok: true, warnings, state: { services: this.#services, nodes: byName } };
  }
}

function addAll(
  list: ProblemList,
  problems: readonly LocalProblem[],
  total: number,
  path: readonly Segment[],
  linesBefore: number,
): void {
  for (const { at, segments, message } of problems) {
    list.add({
      line: at.line + linesBefore,
      column: at.column,
      path: formatPath([...path, ...segments]),
      message,
    });
  }
  list.addUnlisted(total - problems.length);
}
