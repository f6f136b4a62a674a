import { readFileSync } from 'node:fs';
import { Ajv } from 'ajv';
import t from 'tap';
import { SCHEMA_URL, validators } from '../../src/file/schema.ts';

interface Part {
  readonly title?: string;
  readonly description?: string;
  readonly type?: unknown;
  readonly enum?: readonly unknown[];
  readonly $ref?: string;
  readonly additionalProperties?: unknown;
  readonly properties?: Record<string, Part>;
  readonly items?: Part;
}
const schema = JSON.parse(readFileSync(SCHEMA_URL, 'utf8')) as Part & {
  definitions: Record<string, Part>;
};

t.test('keys have descriptions, values have names, other keys are refused', async (t) => {
  t.match(
    schema,
    { $schema: 'http://json-schema.org/draft-07/schema#' },
    'which editors know best',
  );
  t.equal(new Ajv({ strict: false }).validateSchema(schema), true);
  const visit = (path: string, part: Part): void => {
    if (part.type !== undefined || part.enum !== undefined) t.ok(part.title, `${path} has a title`);
    if (part.properties) t.equal(part.additionalProperties, false, `${path} is closed`);
    for (const [key, value] of Object.entries(part.properties ?? {})) {
      if (!path.endsWith('scopes')) t.ok(value.description, `${path}.${key} has a description`);
      visit(`${path}.${key}`, value);
    }
    if (part.items) visit(`${path}[]`, part.items);
  };
  for (const [name, part] of Object.entries({ file: schema, ...schema.definitions })) {
    visit(name, part);
  }
});

/** Whether a value is accepted in the place of a list in `ips.clusterips`, or of source ranges. */
function accepts(key: 'v4' | 'v6' | 'cidr', text: string): boolean {
  const service =
    key === 'cidr'
      ? { name: 'x', ipfilters: [{ sourceranges: [text] }] }
      : { name: 'x', ips: { clusterips: { [key]: [text] } } };
  return validators().serviceItem({ service }).length === 0;
}

t.test('addresses and networks are strict', async (t) => {
  const good = {
    v4: '0.0.0.0,255.255.255.255',
    v6: '::,FD00::A,2001:db8:0:0:0:0:0:1,64:ff9b::192.0.2.1',
    cidr: '0.0.0.0/0,10.0.0.1/8,10.0.0.1/32,::/0,::1/128',
  };
  const bad = {
    v4: ',1,0x7f.0.0.1,01.2.3.4,1.2.3.4 , 1.2.3.4,1.2.3.4/32,1.2.3,::1',
    v6: ',:::,1.2.3.4,fe80::1%1,::ffff:1.2.3.4,::FFFF:102:304,[::1],1:2:3:4:5:6:7',
    cidr:
      ',/,10.0.0.0/,10.0.0.0/33,10.0.0.0/-1,10.0.0.0/08,10.0.0.0/8/8,10.0.0.0/ 8,10/8,::/129,' +
      '::ffff:1.2.3.4/96,fe80::%1/64,10.0.0.0/1e1',
  };
  for (const key of ['v4', 'v6', 'cidr'] as const) {
    for (const text of good[key].split(',')) t.ok(accepts(key, text), `${key} ${text}`);
    for (const text of bad[key].split(',')) t.notOk(accepts(key, text), `${key} '${text}'`);
  }
});
