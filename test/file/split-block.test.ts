import t from 'tap';
import { offsetBefore } from '../../src/file/pieces.ts';
import { splitBlock } from '../../src/file/split-block.ts';
import { lines } from '../support/state-file.ts';

const splitServices = (text: string) => splitBlock(text, 'services');

t.test('a file is cut into its service items and the rest', async (t) => {
  const text = lines(
    '# head',
    'nodes: []',
    'services: # here',
    '',
    '# first',
    '- service:',
    '    name: a',
    '# belongs to a',
    '-   service: {name: b}',
    '',
    'other: 1',
    '# tail',
  );
  t.strictSame(splitServices(text), {
    form: 'block',
    items: [
      { text: '- service:\n    name: a\n# belongs to a\n', start: text.indexOf('- service') },
      { text: '-   service: {name: b}\n\n', start: text.indexOf('-   service') },
    ],
    rest: '# head\nnodes: []\nservices: # here\nother: 1\n# tail\n',
    keyAt: 17,
    cutAt: text.indexOf('\n# first'),
    cutLength: text.indexOf('other') - text.indexOf('\n# first'),
  });
});

t.test('items that are indented, and a last line without an end', async (t) => {
  const split = splitServices('services:\n  - service:\n      name: a\n  - service: {name: b}');
  t.strictSame(
    split?.items.map(({ text }) => text),
    ['  - service:\n      name: a\n', '  - service: {name: b}'],
  );
  t.equal(split?.rest, 'services:\n');
});

t.test('the texts of the items and the rest are the whole file', async (t) => {
  const text = lines('a: 1', 'services:', '', '- x', '-', '  y', '', '- z # end', 'b: 2');
  const split = splitServices(text);
  const before = text.slice(0, text.indexOf('\n- x'));
  t.equal(`${before}\n${split?.items.map((item) => item.text).join('')}b: 2\n`, text);
});

t.test('what may mean something else as a whole is not cut', async (t) => {
  const texts = {
    'no services': 'nodes: []\n',
    'a value behind the key': 'services: []\n',
    'nothing behind the key': 'services:',
    'no item': 'services:\n# nothing\n',
    'a map': 'services:\n  web: 1\n',
    'the key is not at the top': 'a:\n  services:\n  - b\n',
    'a directive': '%YAML 1.1\n---\nservices:\n- a\n',
    'a second document': 'services:\n- a\n---\n- b\n',
    'the end of the document': 'services:\n- a\n...\n',
    tabs: 'services:\n\t- a\n',
    'an item that is indented less': 'services:\n  - a\n - b\n',
    'a key that is indented less than the items': 'services:\n  - a\n b: 1\n',
    'a bracket at the start of a line': 'services:\n- [a,\n]\n',
    'a dash without a space': 'services:\n- a\n-b\n',
    'an anchor at the start of a line': 'services:\n- a\n&b c: 1\n',
  };
  for (const [name, text] of Object.entries(texts)) {
    t.equal(splitServices(text), undefined, name);
  }
});

t.test('a file of many megabytes is cut in no time', async (t) => {
  const item = lines('- service:', '    name: web', ...Array.from({ length: 100 }, () => '  # x'));
  const text = `services:\n${item.repeat(20_000)}`;
  const startedAt = performance.now();
  t.equal(splitServices(text)?.items.length, 20_000);
  const seconds = (performance.now() - startedAt) / 1000;
  t.ok(seconds < 10, `${text.length} characters in ${seconds.toFixed(2)} s`);
});

t.test('the endpoints of a service item, wherever their key stands', async (t) => {
  const endpoints = '- podname: a\n    endpoint: {}\n  # more\n  - podname: b\n';
  const forms = {
    last: `- service:\n    name: web\n  endpoints:\n  ${endpoints}`,
    first: `- endpoints: # here\n  ${endpoints}  service:\n    name: web\n`,
    'in the middle': `- x: 1\n  endpoints:\n  ${endpoints}  service:\n    name: web\n`,
  };
  for (const [name, text] of Object.entries(forms)) {
    const split = splitBlock(text, 'endpoints', 2, '- ');
    t.strictSame(
      split?.items.map((item) => [item.text, item.start]),
      [
        ['  - podname: a\n    endpoint: {}\n  # more\n', text.indexOf('  - podname: a')],
        ['  - podname: b\n', text.indexOf('  - podname: b')],
      ],
      name,
    );
    t.equal(text.indexOf('endpoints'), split?.keyAt, name);
    t.notOk(split?.rest.includes('podname'), name);
  }
  const notCut = {
    'a key of something else': '- service:\n    endpoints:\n    - a\n',
    'items that are indented less than the key': '- service:\n  endpoints:\n - a\n',
    'a value behind the key': '- endpoints: []\n',
  };
  for (const [name, text] of Object.entries(notCut)) {
    t.equal(splitBlock(text, 'endpoints', 2, '- '), undefined, name);
  }
});

t.test('the places in the rest lead back to the file', async (t) => {
  const text = lines('a: 1', 'services:', '- x', '- y', 'b: 2');
  const split = splitServices(text);
  if (split === undefined) throw new Error('it can be cut');
  for (const key of ['a', 'services', 'b']) {
    const inRest = split.rest.indexOf(`${key}:`);
    t.equal(offsetBefore(split, inRest), text.indexOf(`${key}:`), key);
  }
});
