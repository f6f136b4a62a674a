import type { ErrorObject } from 'ajv';
import type { GlobalService } from '../store/global-state.ts';
import { buildService } from './build.ts';
import { checkItem } from './check.ts';
import { describe } from './describe.ts';
import type { LocalProblem } from './problem.ts';
import type { RawServiceItem } from './raw.ts';
import type { Locator, ReadResult } from './reading.ts';
import { validators } from './schema.ts';

/** What became of one service item. Depends on nothing but its text, so it can be kept. */
export interface Item {
  /** Undefined when there is an error. */
  readonly service: GlobalService | undefined;
  /** The first ones; `errorCount` tells how many there are. */
  readonly errors: readonly LocalProblem[];
  readonly errorCount: number;
  readonly warnings: readonly LocalProblem[];
  readonly warningCount: number;
}

/** Reads a service item. Not more than `maxProblems` of each kind are listed. */
export function readItem(reading: ReadResult, maxProblems: number): Item {
  if (!reading.ok) return refusedItem(reading.errors, reading.errors.length);
  const { value, locate } = reading;
  const errors = validators().serviceItem(value);
  if (errors.length > 0) {
    return refusedItem(schemaProblems(errors, value, maxProblems, locate), errors.length);
  }
  return checkedItem(value as RawServiceItem, locate, maxProblems);
}

/** A service item that the JSON schema has nothing against. */
export function checkedItem(raw: RawServiceItem, locate: Locator, maxProblems: number): Item {
  const findings = checkItem(raw);
  const problems = (severity: 'error' | 'warning'): LocalProblem[] =>
    findings
      .filter((finding) => finding.severity === severity)
      .slice(0, maxProblems)
      .map(({ segments, message }) => ({ offset: locate(segments, false), segments, message }));
  const errorCount = findings.filter(({ severity }) => severity === 'error').length;
  return {
    service: errorCount === 0 ? buildService(raw) : undefined,
    errors: problems('error'),
    errorCount,
    warnings: problems('warning'),
    warningCount: findings.length - errorCount,
  };
}

/** An item with errors that keep it from being checked any further. */
export function refusedItem(errors: readonly LocalProblem[], errorCount: number): Item {
  return { service: undefined, errors, errorCount, warnings: [], warningCount: 0 };
}

/** Errors of the schema validator as problems with a place, not more than `maxProblems`. */
export function schemaProblems(
  errors: readonly ErrorObject[],
  root: unknown,
  maxProblems: number,
  locate: Locator,
): LocalProblem[] {
  return errors.slice(0, maxProblems).map((error) => {
    const { segments, atKey, message } = describe(error, root);
    return { offset: locate(segments, atKey), segments, message };
  });
}
