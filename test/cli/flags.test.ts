import t from 'tap';
import { GLOBAL_FLAGS } from '../../src/cli/flags/global.ts';
import { LIMIT_FLAGS, readLimits } from '../../src/cli/flags/limits.ts';
import { defaultText, pickValues, type FlagTable } from '../../src/cli/flags/table.ts';
import { REGISTRY } from '../../src/cli/registry.ts';
import { DEFAULT_LIMITS, LIMIT_NAMES } from '../../src/proxysocket/limits.ts';

const TABLES: [string, FlagTable][] = [
  ['global', GLOBAL_FLAGS],
  ...[...REGISTRY.sources, ...REGISTRY.sinks].map(({ word, flags }): [string, FlagTable] => [
    word,
    flags,
  ]),
];

t.test('flag names are what users of kube-proxy expect', (t) => {
  for (const [word, table] of TABLES) {
    for (const name of Object.keys(table)) {
      t.match(name, /^[a-z]+\d?(-[a-z]+)*$/, `${word} --${name}`);
      t.notMatch(name, /^no-/, 'commander would take it for a negation');
    }
  }
  t.end();
});

t.test('no name means two things on one command line', (t) => {
  const namesOf = (table: FlagTable): string[] =>
    Object.entries(table).flatMap(([name, { aliases = [] }]) => [name].concat(aliases));
  for (const source of REGISTRY.sources) {
    for (const sink of REGISTRY.sinks) {
      const names = [GLOBAL_FLAGS, source.flags, sink.flags].flatMap(namesOf);
      t.equal(new Set(names).size, names.length, `${source.word} ${sink.word}`);
    }
  }
  t.end();
});

t.test('a name means the same to every command, as words and values are told apart by it', (t) => {
  const seen = new Map<string, string>();
  for (const [word, table] of TABLES) {
    for (const [name, { kind, short, aliases }] of Object.entries(table)) {
      const meaning = JSON.stringify([kind.placeholder, short, aliases]);
      t.equal(seen.get(name) ?? meaning, meaning, `${word} --${name}`);
      seen.set(name, meaning);
    }
  }
  t.end();
});

t.test('every default is a value that could be given, and is told', (t) => {
  for (const [word, table] of TABLES) {
    for (const [name, spec] of Object.entries(table)) {
      if (spec.default === undefined) continue;
      const label = `${word} --${name}`;
      t.same(spec.kind.parse(spec.kind.format(spec.default)), spec.default, label);
      t.ok(defaultText(spec) !== undefined || spec.kind.format(spec.default) === '', label);
    }
  }
  t.end();
});

t.test('every flag is explained in whole sentences', (t) => {
  for (const [word, table] of TABLES) {
    for (const [name, { help, group }] of Object.entries(table)) {
      t.match(help, /^[A-Za-z].*\.$/s, `${word} --${name}`);
      t.not(group, '', `${word} --${name}`);
    }
  }
  t.end();
});

t.test('every limit of the data path has a flag of its public name', (t) => {
  t.same(Object.keys(LIMIT_NAMES).sort(), Object.keys(DEFAULT_LIMITS).sort());
  t.same(Object.values(LIMIT_NAMES).sort(), Object.keys(LIMIT_FLAGS).sort());
  const defaults = pickValues(LIMIT_FLAGS, { values: new Map(), given: new Set() });
  t.same(readLimits(defaults), DEFAULT_LIMITS);
  t.end();
});
