import type { ErrorObject } from 'ajv';
import { isSeq, type Node } from 'yaml';
import type { GlobalService } from '../store/global-state.ts';
import { hasAlias } from './aliases.ts';
import { buildService } from './build.ts';
import { checkItem } from './check.ts';
import { describe } from './describe.ts';
import { positionAt, type LocalProblem, type Position, type Segment } from './problem.ts';
import type { RawServiceItem } from './raw.ts';
import { validators } from './schema.ts';
import { locate, parseYaml, toPlain, type YamlDocument } from './yaml.ts';

/** What became of one service item. Depends on nothing but its text, so it can be kept. */
export interface Item {
  /** Undefined when there is an error. */
  readonly service: GlobalService | undefined;
  /** Where the service's name stands. */
  readonly nameAt: Position;
  /** The first ones; `errorCount` tells how many there are. */
  readonly errors: readonly LocalProblem[];
  readonly errorCount: number;
  readonly warnings: readonly LocalProblem[];
  readonly warningCount: number;
}

/**
 * Reads a service item from its own text: a YAML list with one item. Undefined when the text only
 * has a meaning together with the rest of its file, because of an alias or a form of YAML that
 * cannot be cut; then nothing is known about it.
 */
export function parseChunk(text: string, maxProblems: number): Item | undefined {
  const yaml = parseYaml(text);
  if (!yaml.ok) return failed(yaml.errors, yaml.errors.length);
  const list = yaml.document.contents;
  if (!isSeq(list) || list.items.length !== 1) return undefined;
  if (text.includes('*') && hasAlias(list)) return undefined;
  const [node] = list.items;
  if (node === undefined) return undefined;
  return readItem(yaml.document, node, toPlain(node, yaml.document), text, maxProblems);
}

/** Reads a service item from its YAML node; `text` is what the document was parsed from. */
export function readItem(
  document: YamlDocument,
  node: Node,
  value: unknown,
  text: string,
  maxProblems: number,
): Item {
  const locator: Locator = (segments, atKey) =>
    positionAt(text, locate(document, node, segments, atKey));
  const schemaErrors = validators().serviceItem(value);
  if (schemaErrors.length > 0) {
    return failed(schemaProblems(schemaErrors, value, maxProblems, locator), schemaErrors.length);
  }
  const raw = value as RawServiceItem;
  const findings = checkItem(raw);
  const problems = (severity: 'error' | 'warning'): LocalProblem[] =>
    findings
      .filter((finding) => finding.severity === severity)
      .slice(0, maxProblems)
      .map(({ segments, message }) => ({ at: locator(segments, false), segments, message }));
  const errorCount = findings.filter(({ severity }) => severity === 'error').length;
  return {
    service: errorCount === 0 ? buildService(raw) : undefined,
    nameAt: locator(['service', 'name'], false),
    errors: problems('error'),
    errorCount,
    warnings: problems('warning'),
    warningCount: findings.length - errorCount,
  };
}

/** Finds the place of a value, or of its key. */
export type Locator = (segments: readonly Segment[], atKey: boolean) => Position;

/** Errors of the schema validator as problems with a position, not more than `maxProblems`. */
export function schemaProblems(
  errors: readonly ErrorObject[],
  root: unknown,
  maxProblems: number,
  locator: Locator,
): LocalProblem[] {
  return errors.slice(0, maxProblems).map((error) => {
    const { segments, atKey, message } = describe(error, root);
    return { at: locator(segments, atKey), segments, message };
  });
}

const TEXT_START: Position = { line: 1, column: 1 };

function failed(errors: readonly LocalProblem[], errorCount: number): Item {
  return {
    service: undefined,
    nameAt: TEXT_START,
    errors,
    errorCount,
    warnings: [],
    warningCount: 0,
  };
}
