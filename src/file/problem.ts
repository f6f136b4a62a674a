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
  readonly at: Position;
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
  let line = 1;
  let start = 0;
  for (let end = text.indexOf('\n'); end !== -1 && end < offset; end = text.indexOf('\n', start)) {
    line += 1;
    start = end + 1;
  }
  return { line, column: Math.min(offset, text.length) - start + 1 };
}

/** Collects problems: keeps the first ones and counts the rest. */
export class ProblemList implements Problems {
  readonly #max: number;
  #kept: Problem[] = [];
  #total = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get total(): number {
    return this.#total;
  }

  get first(): readonly Problem[] {
    return this.#kept
      .toSorted((a, b) => a.line - b.line || a.column - b.column)
      .slice(0, this.#max);
  }

  /** Keeps up to four times the limit, since problems do not arrive in order of their position. */
  add(problem: Problem): void {
    this.#total += 1;
    if (this.#kept.length < this.#max * 4) this.#kept.push(problem);
  }

  /** Counts problems that nobody kept. */
  addUnlisted(count: number): void {
    this.#total += count;
  }
}
