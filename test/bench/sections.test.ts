import t from 'tap';
import { keepSections, putSection } from '../../bench/report/sections.ts';

const page = '# Benchmarks\n\nText.\n\n## How to read it\n\nMore.\n';

t.test('a section that is new comes before what explains how to read the page', (t) => {
  t.equal(
    putSection(page, 'portals', '## Portals\n\nFast.\n'),
    '# Benchmarks\n\nText.\n\n<!-- begin portals -->\n\n## Portals\n\nFast.\n\n' +
      '<!-- end portals -->\n\n## How to read it\n\nMore.\n',
  );
  t.match(putSection('# Empty\n', 'portals', 'x'), /^# Empty\n\n<!-- begin portals -->/);
  t.end();
});

t.test('a section that is there is replaced, where it is, whatever is in the new one', (t) => {
  const first = putSection(page, 'portals', 'old');
  const second = putSection(first, 'portals', 'new: $& $1');
  t.equal(
    second,
    first.replace('old', () => 'new: $& $1'),
  );
  t.equal(putSection(second, 'portals', 'old'), first);
  t.end();
});

t.test('a page that is written anew keeps the sections that others have written', (t) => {
  const former = putSection(putSection(page, 'portals', 'one'), 'control', 'two');
  const renewed = '# Benchmarks\n\nNew text.\n\n## How to read it\n\nMore.\n';
  const kept = keepSections(renewed, former);
  t.match(kept, /New text\.[^]*one[^]*two[^]*## How to read it/);
  t.equal(keepSections(kept, former), kept, 'and does not repeat them');
  t.equal(keepSections(renewed, page), renewed);
  t.end();
});
