import * as fc from 'fast-check';
import t from 'tap';
import { compileGlobs } from '../../src/kube/globs.ts';
import { holds } from '../support/property.ts';

function matches(pattern: string, key: string): boolean {
  return compileGlobs([pattern])({ [key]: 'x' })[key] === 'x';
}

t.test('patterns', async (t) => {
  const cases: [pattern: string, yes: string[], no: string[]][] = [
    ['app', ['app'], ['apps', 'a', '']],
    ['*', ['', 'a', 'a.b/c'], []],
    ['app.*', ['app.x', 'app.example/tier'], ['app', 'xapp.y']],
    ['*.example/*', ['app.example/tier'], ['app.example']],
    ['a**b', ['ab', 'axxb'], ['a']],
    ['n?te', ['note', 'nate'], ['nte', 'noote']],
    ['[ab]x', ['ax', 'bx'], ['cx', 'abx']],
    ['[!ab]x', ['cx'], ['ax', 'bx']],
    ['[a-c]x', ['ax', 'bx', 'cx'], ['dx', '-x']],
    ['[!a-c]x', ['dx'], ['bx']],
    ['[a-]x', ['ax', '-x'], ['bx']],
    ['{a,bc}x', ['ax', 'bcx'], ['bx', 'abcx']],
    ['{a,{b,c}}', ['a', 'b', 'c'], ['ab']],
    ['{a*,}x', ['x', 'azx'], ['b']],
    ['a,b', ['a,b'], ['a']],
    [String.raw`a\*b`, ['a*b'], ['axb']],
    ['a.b', ['a.b'], ['axb']],
    ['a+(b)|^$', ['a+(b)|^$'], ['aab']],
    ['[.^]', ['.', '^'], ['a']],
  ];
  for (const [pattern, yes, no] of cases) {
    for (const key of yes) t.ok(matches(pattern, key), `${pattern} matches ${key}`);
    for (const key of no) t.notOk(matches(pattern, key), `${pattern} does not match ${key}`);
  }
});

t.test('the time to match grows with pattern and key, not their combinations', async (t) => {
  const key = 'a'.repeat(250);
  t.notOk(matches(`${'*a'.repeat(30)}*b`, key));
  t.notOk(matches(`${'{a,aa,*}'.repeat(60)}b`, key));
  t.ok(matches(`${'{a,aa,*}'.repeat(60)}a`, key));
});

t.test('bad patterns say what is wrong with them', async (t) => {
  for (const [pattern, message] of [
    ['a[b', /no \] for the \[ in a\[b/],
    ['a{b', /no \} for the \{/],
    ['a}b', /no \{ for the \}/],
    ['[]', /no \]/],
    ['[!]x', /nothing between|no \]/],
    ['[c-a]', /c-a is not a range/],
    ['a\\', /nothing after the \\/],
    ['{'.repeat(100_000), /braces are nested more than 16 deep/],
  ] as const) {
    t.throws(() => compileGlobs([pattern]), { message }, pattern);
  }
});

t.test('without patterns nothing matches, and only texts ever do', async (t) => {
  t.strictSame(compileGlobs([])({ a: 'x' }), {});
  t.strictSame(compileGlobs(['a', 'b', 'c'])({ a: 'x', b: 1, c: null, d: 'y' }), { a: 'x' });
});

t.test('a key matches itself, whatever is in it, once it is quoted', async (t) => {
  holds(
    t,
    fc.property(fc.string(), (key) => {
      const quoted = key.replaceAll(/[*?[\]{}\\,]/g, String.raw`\$&`);
      return matches(quoted, key) && matches(`${quoted}*`, `${key}more`) && matches('*', key);
    }),
  );
});
