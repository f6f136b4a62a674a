import t from 'tap';
import { findWords } from '../../tools/prose/lint.ts';
import { proseOfSource } from '../../tools/prose/source.ts';

t.test('words with a better alternative are found, with their line', async (t) => {
  const page = 'Rules of a former process.\n\nThe client is told.\n';
  t.match(findWords(page), [
    { line: 1, found: 'former', use: /previous/ },
    { line: 3, found: 'told', use: /report/ },
  ]);
  t.same(findWords('The previous process reported it.\n'), []);
});

t.test('code, program output and generated tables are skipped', async (t) => {
  const page = [
    'A line `Took over from the former process`.',
    '```text',
    'former',
    '```',
    '<!-- begin flags -->',
    '| nobody |',
    '<!-- end flags -->',
    'Whoever reads this.',
  ];
  t.match(findWords(page.join('\n')), [{ line: 8, found: 'Whoever' }]);
  t.equal(findWords(page.join('\n')).length, 1);
});

t.test('of source, comments and strings with a blank are read, on their lines', async (t) => {
  const source = [
    "import { former } from './former.ts';",
    'const told = /nobody ["`]/.test(former.successor);',
    "log.info('former', `${told ? 'nobody' : `the successor of ${pid}`} took over`);",
    '/* Whoever',
    '   told it. */',
    'const unit = a / b; // nobody / x',
    'const text = `{ ${ { a: "a former process" }.a } led`;',
  ];
  t.match(findWords(proseOfSource(source.join('\n'))), [
    { line: 3, found: 'successor' },
    { line: 4, found: 'Whoever' },
    { line: 5, found: 'told' },
    { line: 6, found: 'nobody' },
    { line: 7, found: 'former' },
    { line: 7, found: 'led' },
  ]);
  t.equal(findWords(proseOfSource(source.join('\n'))).length, 6);
});
