import { compileGlobs } from '../../kube/globs.ts';
import type { FlagKind } from './table.ts';

/** A comma list of patterns; a comma within braces belongs to its pattern. May be repeated. */
export function globs(): FlagKind<readonly string[]> {
  return {
    placeholder: 'patterns',
    schema: { type: ['array', 'string'], items: { type: 'string' } },
    parse(given) {
      const patterns = splitPatterns(given)
        .map((pattern) => pattern.trim())
        .filter((pattern) => pattern !== '');
      compileGlobs(patterns);
      return patterns;
    },
    format: (value) => value.join(','),
    merge: (former, latter) => [...former, ...latter],
  };
}

function splitPatterns(given: string): string[] {
  const patterns: string[] = [];
  let depth = 0;
  let start = 0;
  for (let i = 0; i < given.length; i += 1) {
    const char = given[i];
    if (char === '\\') i += 1;
    else if (char === '{') depth += 1;
    else if (char === '}') depth -= 1;
    else if (char === ',' && depth <= 0) {
      patterns.push(given.slice(start, i));
      start = i + 1;
    }
  }
  return [...patterns, given.slice(start)];
}
