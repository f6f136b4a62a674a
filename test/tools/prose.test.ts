import t from 'tap';
import { findWords } from '../../tools/prose/lint.ts';

t.test('words that have a better one are found, with their line', async (t) => {
  const page = 'Rules of a former process.\n\nThe client is told.\n';
  t.match(findWords(page), [
    { line: 1, found: 'former', use: /previous/ },
    { line: 3, found: 'told', use: /report/ },
  ]);
  t.same(findWords('The previous process reported it.\n'), []);
});

t.test('code, what programs print, and generated tables are left out', async (t) => {
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
