import { compileGlobs } from '../../kube/globs.ts';
import type { FlagKind } from './table.ts';

/** A comma list of patterns; a comma within braces belongs to its pattern. May be repeated. */
export function globs(): FlagKind<readonly string[]> {
  return {
    placeholder: 'patterns',
    schema: { type: ['array', 'string'], items: { type: 'string' } },
    parse(given) {
      const patterns = given
        .split(/,(?![^{]*\})/)
        .map((pattern) => pattern.trim())
        .filter((pattern) => pattern !== '');
      compileGlobs(patterns);
      return patterns;
    },
    format: (value) => value.join(','),
    merge: (former, latter) => [...former, ...latter],
  };
}
