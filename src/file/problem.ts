/** Where in a file, both counted from 1. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** A step from a YAML value into it: a key of a map, or an index of a list. */
export type Segment = string | number;

/** Something in a state file that is wrong, or that will not do what its author may expect. */
export interface Problem extends Position {
  /** Such as `services[2].service.ports[0].port`; empty when it is about the file as a whole. */
  readonly path: string;
  readonly message: string;
}

/** A problem at some place of a text, not yet of the file. */
export interface LocalProblem {
  /** Offset in the text. */
  readonly offset: number;
  /** From the value that was checked (the file, or a service item) to the one that is wrong. */
  readonly segments: readonly Segment[];
  readonly message: string;
}

/** Problems of one kind: the first ones, and how many there are. */
export interface Problems {
  /** By position; not more than the limit. */
  readonly first: readonly Problem[];
  readonly total: number;
}

/** Writes a path the way people do: `services[2].service.labels["a/b"]`. */
export function formatPath(segments: readonly Segment[]): string {
  let text = '';
  for (const segment of segments) {
    if (typeof segment === 'number') text += `[${segment}]`;
    else if (/^[A-Za-z_][\w-]{0,62}$/.test(segment)) text += text === '' ? segment : `.${segment}`;
    else text += `[${JSON.stringify(shorten(segment))}]`;
  }
  return text;
}

/** A text of the file, short enough for a message. */
export function shorten(text: string): string {
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** One line for one problem: `state.yaml:14:13: services[2].service.ports[0].port: …`. */
export function formatProblem(file: string, problem: Problem): string {
  const path = problem.path === '' ? '' : `${problem.path}: `;
  return `${file}:${problem.line}:${problem.column}: ${path}${problem.message}`;
}

/** All problems that are known, one in a line, and how many more there are. */
export function formatProblems(file: string, problems: Problems): string {
  const lines = problems.first.map((problem) => formatProblem(file, problem));
  const more = problems.total - problems.first.length;
  if (more > 0) lines.push(`… and ${more} more`);
  return lines.join('\n');
}

/** Line and column of an offset in a text. */
export function positionAt(text: string, offset: number): Position {
  const [position = { line: 1, column: 1 }] = positionsAt(text, [offset]);
  return position;
}

/** Lines and columns of offsets in a text, which are in ascending order: the text is gone through once. */
function positionsAt(text: string, offsets: readonly number[]): Position[] {
  let line = 1;
  let start = 0;
  let end = text.indexOf('\n');
  return offsets.map((offset) => {
    while (end !== -1 && end < offset) {
      line += 1;
      start = end + 1;
      end = text.indexOf('\n', start);
    }
    return { line, column: Math.min(offset, text.length) - start + 1 };
  });
}

/** A problem whose place in the file is not worked out yet. */
interface Placed {
  readonly offset: number;
  readonly path: string;
  readonly message: string;
}

/** Collects problems: keeps the first ones and counts the rest. */
export class ProblemList {
  readonly #max: number;
  readonly #kept: Placed[] = [];
  #total = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get total(): number {
    return this.#total;
  }

  /** Whether more of them are only counted: four times the limit, since they do not come in order. */
  get full(): boolean {
    return this.#kept.length >= this.#max * 4;
  }

  add(problem: Placed): void {
    this.#total += 1;
    if (!this.full) this.#kept.push(problem);
  }

  /** Counts problems that nobody kept. */
  addUnlisted(count: number): void {
    this.#total += count;
  }

  /** The list, with the places in the text of the file. */
  in(text: string): Problems {
    const kept = this.#kept.toSorted((a, b) => a.offset - b.offset).slice(0, this.#max);
    const positions = positionsAt(
      text,
      kept.map(({ offset }) => offset),
    );
    const first = kept.map(({ path, message }, index) => {
      const { line = 1, column = 1 } = positions[index] ?? {};
      return { line, column, path, message };
    });
    return { first, total: this.#total };
  }
}
