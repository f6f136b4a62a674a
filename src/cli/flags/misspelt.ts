import { closest } from '../../util/suggest.ts';
import type { Environment } from './read.ts';
import { variableOf } from './table.ts';

/** An environment variable that nobody reads, and the one that was probably meant. */
export interface MisspeltVariable {
  readonly variable: string;
  readonly meant: string;
}

/** What Kubernetes sets in pods for a Service whose name begins with `kpng`. */
const SERVICE_LINK = /^KPNG_(.*_)?(SERVICE_(HOST|PORT)(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)$/;

/** Variables whose names are nearly those of flags; `flags`: those of all commands. */
export function misspeltVariables(env: Environment, flags: readonly string[]): MisspeltVariable[] {
  const known = flags.map(variableOf);
  return Object.keys(env).flatMap((variable) => {
    if (!variable.startsWith('KPNG_') || known.includes(variable)) return [];
    if (SERVICE_LINK.test(variable)) return [];
    const meant = closest(variable, known);
    return meant === undefined ? [] : [{ variable, meant }];
  });
}
