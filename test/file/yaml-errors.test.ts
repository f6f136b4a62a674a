import t from 'tap';
import { parseStateFile } from '../../src/file/parse.ts';
import { inOnePiece, lines, problemsOf } from '../support/state-file.ts';

/** A file with one service; the given lines are indented below `service:`. */
function service(...inService: string[]): string {
  return lines(
    'services:',
    '- service:',
    '    name: web',
    ...inService.map((line) => `    ${line}`),
  );
}

/** The mistake, the text, and all that is said about it. */
const MISTAKES: [string, string, string[]][] = [
  [
    'duplicate key',
    service('mapip: true', 'mapip: false'),
    ["5:5: services[0]: duplicate key 'mapip'"],
  ],
  [
    'a quote that is not closed',
    service('type: "ClusterIP'),
    ['5:1: services[0]: a quote or bracket is not closed before this, or the indentation is wrong'],
  ],
  ['a tab', service('\tports: []'), ['4:5: services[0]: a tab where only spaces may be']],
  [
    'a line that is indented too far, and one that is not far enough',
    lines('services:', '- service:', '    name: web', '     type: ClusterIP', '   mapip: true'),
    ["4:10: services[0]: wrong indentation of a key, or a ': ' too many in a text without quotes"],
  ],
  [
    'a line that is not indented enough',
    lines('services:', '- service:', '    name: web', ' endpoints: []'),
    ['4:2: services[0]: wrong indentation: the items of a list start in one column'],
  ],
  [
    "':' without a space",
    service('mapip:true'),
    [
      "4:15: services[0]: this is neither a key with ': ' nor part of the line before; is the indentation right?",
    ],
  ],
  [
    'a list and a map that are not closed',
    service('ips: {clusterips: {v4: [10.0.0.1}}'),
    ["4:37: services[0]: a comma is missing before this, or a '[' or '{' is not closed"],
  ],
  [
    'an unknown tag',
    service('type: !kind ClusterIP'),
    ['4:11: services[0]: no tag but !!str is supported'],
  ],
];

for (const [name, text, expected] of MISTAKES) {
  t.test(name, async (t) => {
    t.strictSame(problemsOf(text), expected);
    t.equal(parseStateFile(inOnePiece(text)).ok, false, 'refused in one piece, too');
  });
}
