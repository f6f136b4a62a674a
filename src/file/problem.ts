import type { Segment } from '../util/yaml.ts';
import { shorten, type Position } from '../util/yaml-text.ts';

/** An error in a state file, or a part that may not have the intended effect. */
export interface Problem extends Position {
  /** Such as `services[2].service.ports[0].port`; empty when it is about the file as a whole. */
  readonly path: string;
  readonly message: string;
}

/** Problems of one kind: the first few, and their number. */
export interface Problems {
  /** By position; not more than the limit. */
  readonly first: readonly Problem[];
  readonly total: number;
}

/** A problem with a value, before its position in the file is known. */
export interface Finding {
  /** From the checked value (the file, or a service item) to the wrong one. */
  readonly segments: readonly Segment[];
  /** Whether the last segment is a key, not its value. */
  readonly atKey?: boolean;
  readonly message: string;
  /** Offset in the file; undefined: where the segments are. */
  readonly offset?: number;
}

/** Formats a path: `services[2].service.labels["a/b"]`. */
export function formatPath(segments: readonly Segment[]): string {
  let text = '';
  for (const segment of segments) {
    if (typeof segment === 'number') text += `[${segment}]`;
    else if (/^[A-Za-z_][\w-]{0,62}$/.test(segment)) text += text === '' ? segment : `.${segment}`;
    else text += `[${JSON.stringify(shorten(segment))}]`;
  }
  return text;
}

/** One line for one problem: `state.yaml:14:13: services[2].service.ports[0].port: …`. */
export function formatProblem(file: string, problem: Problem): string {
  const path = problem.path === '' ? '' : `${problem.path}: `;
  return `${file}:${problem.line}:${problem.column}: ${path}${problem.message}`;
}

/** All listed problems, one per line, and the number of further ones. */
export function formatProblems(file: string, problems: Problems): string {
  const lines = problems.first.map((problem) => formatProblem(file, problem));
  const more = problems.total - problems.first.length;
  if (more > 0) lines.push(`… and ${more} more`);
  return lines.join('\n');
}
