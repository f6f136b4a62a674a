import type { KubeObject } from './objects.ts';

export type Matches = (object: KubeObject) => boolean;

/**
 * Label selectors (`a`, `!a`, `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, joined by commas) and
 * the field selectors `metadata.name` and `metadata.namespace`.
 */
export function selector(labels: string | null, fields: string | null): Matches {
  const tests = [...split(labels ?? '').map(labelTest), ...split(fields ?? '').map(fieldTest)];
  return (object) => tests.every((test) => test(object));
}

/** At the commas that are not in parentheses. */
function split(text: string): string[] {
  return text
    .split(/,(?![^(]*\))/)
    .map((term) => term.trim())
    .filter((term) => term !== '');
}

function labelTest(term: string): Matches {
  const set = /^(\S+) (in|notin) \((.*)\)$/.exec(term);
  if (set !== null) {
    const [, key = '', verb, list = ''] = set;
    const values = new Set(list.split(',').map((value) => value.trim()));
    return ({ metadata: { labels = {} } }) => {
      const value = labels[key];
      return (value !== undefined && values.has(value)) === (verb === 'in');
    };
  }
  const [, key = '', operator, value] = /^([^=!]+)(==?|!=)(.*)$/.exec(term) ?? [];
  if (operator !== undefined) {
    return ({ metadata: { labels = {} } }) => (labels[key] === value) === (operator !== '!=');
  }
  const wanted = !term.startsWith('!');
  const name = wanted ? term : term.slice(1);
  return ({ metadata: { labels = {} } }) => Object.hasOwn(labels, name) === wanted;
}

function fieldTest(term: string): Matches {
  const [, field = '', operator, value] = /^([^=!]+)(==?|!=)(.*)$/.exec(term) ?? [];
  const key = field.replace('metadata.', '');
  return ({ metadata }) => (metadata[key] === value) === (operator !== '!=');
}
