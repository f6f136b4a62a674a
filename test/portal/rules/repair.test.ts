import type { Test } from 'tap';
import { portalFailed, portalLost, portalWritten } from '../../../src/portal/events.ts';
import { exits } from '../../support/fake-exec.ts';
import { listening } from '../../support/sockets.ts';
import { NODE, type NftablesRig, testRules } from '../../support/rule-rigs.ts';
import { wants } from '../../support/portals.ts';

const web = wants('d/web', 'clusterIP 10.0.0.1:80', 'nodePort 30080');

/** A rig with one service, and what its portal reports from then on. */
async function written(t: Test, rig: NftablesRig) {
  await rig.sync([web]);
  const told: string[] = [];
  listening(t, portalWritten, ({ reason }) => told.push(`written: ${reason}`));
  listening(t, portalFailed, ({ error }) => told.push(`failed: ${error.code}`));
  listening(t, portalLost, () => told.push('lost'));
  return { rig, told };
}

testRules('rules that another program removed come back, and are retried', async (t, make) => {
  const { rig, told } = await written(t, make());
  const runs = rig.runs;
  await rig.look();
  t.equal(rig.runs, runs, 'as long as all is well, no program is run');
  rig.nft.tables.clear();
  rig.nft.broken = { fails: 'missing' };
  await rig.look();
  t.strictSame(told, ['lost', 'failed: KPNG_PORTAL_TOOL_MISSING']);
  rig.nft.broken = undefined;
  await rig.look();
  t.strictSame(told.slice(2), ['written: repair'], 'and the loss is reported once');
  t.equal(rig.lands('10.0.0.1:80'), 'proxy port 40002');
  t.equal(rig.lands('192.0.2.5:30080'), 'proxy port 40001');

  rig.nft.tables.clear();
  const repaired = rig.runs;
  await rig.sync([wants('d/db', 'clusterIP 10.0.0.2:5432')]);
  t.strictSame(told.slice(3), ['written: repair'], 'a change finds the table missing');
  t.equal(rig.runs - repaired, 5, 'the change, a listing, the repair, and half-open flows');
  t.match(rig.lands('10.0.0.2:5432'), /proxy port/);
  t.match(rig.lands('10.0.0.1:80'), /proxy port/);
});

testRules('a single removed rule comes back, and is reported once', async (t, make) => {
  const gate = Promise.withResolvers<void>();
  let isHeld = false;
  const rig: NftablesRig = make({
    exec: async (command) => {
      if (isHeld && command.stdin !== undefined) await gate.promise;
      return rig.exec(command);
    },
  });
  const { told } = await written(t, rig);
  await rig.look(60_000);
  t.strictSame(told, [], 'nothing is written while nothing differs');
  rig.nft.table().sets.get('services4')?.delete('10.0.0.1 . tcp . 80');
  rig.clock.advance(60_000);
  isHeld = true;
  await rig.look();
  rig.nft.tables.clear();
  await rig.look();
  gate.resolve();
  await rig.look(0);
  t.strictSame(told, ['lost', 'written: repair'], 'not what a check sees during the repair');
  t.match(rig.lands('10.0.0.1:80'), /proxy port/);
  await rig.look(60_000);
  t.equal(told.length, 2);
});

testRules('comparisons that fail do not delay the next ones', async (t, make) => {
  const { rig, told } = await written(t, make());
  rig.nft.broken = { fails: 'timeout' };
  for (let n = 0; n < 20; n += 1) await rig.look(60_000);
  rig.nft.broken = undefined;
  rig.nft.table().sets.get('services4')?.delete('10.0.0.1 . tcp . 80');
  await rig.look(60_000);
  t.strictSame(told, ['lost', 'written: repair']);
});

testRules('leaves the table to another process until that one has ended', async (t, make) => {
  const { rig, told } = await written(t, make());
  const other = await rig.takeOver([wants('x/x', 'clusterIP 10.9.9.9:80')]);
  told.length = 0;

  await rig.look();
  const runs = rig.runs;
  for (let n = 0; n < 5; n += 1) await rig.look();
  t.strictSame(told, [], 'it may be about to end, handed over to the other one');
  for (let n = 0; n < 15; n += 1) await rig.look();
  t.strictSame(told, ['failed: KPNG_PORTAL_TAKEN'], 'reported once');
  t.equal(rig.runs, runs, 'it leaves the table alone');
  await t.rejects(rig.sync([wants('d/db', 'clusterIP 10.0.0.2:5432')]), {
    code: 'KPNG_PORTAL_TAKEN',
  });
  t.match(rig.lands('10.9.9.9:80'), /proxy port/);

  rig.dead.add(other);
  await rig.look();
  t.equal(told.at(-1), 'written: start');
  t.match(rig.lands('10.0.0.1:80'), /proxy port/);
  t.match(rig.lands('10.0.0.2:5432'), /proxy port/, 'with what has changed in the meantime');
  t.equal(rig.lands('10.9.9.9:80'), 'passed on');
});

testRules('a table that another process has just taken is not touched', async (t, make) => {
  const { rig } = await written(t, make());
  await rig.takeOver([web]);
  const before = rig.lands('10.0.0.1:80');
  await t.rejects(rig.sync([wants('d/db', 'clusterIP 10.0.0.2:5432')]), {
    code: 'KPNG_PORTAL_TAKEN',
    message: /another process writes the nftables table inet kpng-userspace/,
  });
  t.equal(rig.lands('10.0.0.2:5432'), 'passed on');
  await rig.portal.close(true);
  t.equal(rig.lands('10.0.0.1:80'), before, 'not even at the end');
});

testRules('a change without permission is retried with the next one', async (t, make) => {
  const { rig } = await written(t, make());
  rig.nft.broken = exits('Operation not permitted (you must be root)\n', 4);
  const runs = rig.runs;
  await t.rejects(rig.sync([wants('d/db', 'clusterIP 10.0.0.2:5432')]), {
    code: 'KPNG_PORTAL_PERMISSION',
    retried: true,
  });
  t.equal(rig.runs, runs + 1, 'not at once, to find a service port to blame');
  rig.nft.broken = undefined;
  await rig.sync([wants('d/more', 'clusterIP 10.0.0.3:80')]);
  t.match(rig.lands('10.0.0.2:5432'), /proxy port/, 'with what had failed');
});

testRules('service ports that the kernel rejects are left out, no others', async (t, make) => {
  const { rig, told } = await written(t, make());
  rig.nft.refuses = (element) => element.startsWith('10.0.0.66');
  const services = Array.from({ length: 40 }, (_, n) =>
    wants(`d/s${n}`, `clusterIP 10.0.1.${n}:80`),
  );
  await rig.sync([...services, wants('d/bad', 'clusterIP 10.0.0.66:80', 'clusterIP 10.0.0.67:80')]);
  t.match(told, [/^failed: KPNG_PORTAL_(?:UNSUPPORTED|FAILED)$/, 'written: repair']);
  t.match(rig.lands('10.0.0.1:80'), /proxy port/, 'what was there');
  for (const n of [0, 17, 39]) t.match(rig.lands(`10.0.1.${n}:80`), /proxy port/);
  t.equal(rig.lands('10.0.0.67:80'), 'passed on', 'none of its portals is there');
  t.match(rig.portal.problems(), [
    { servicePort: 'd/bad', message: /d\/bad is left out; retried later/ },
  ]);

  const runs = rig.runs;
  await rig.sync([wants('d/more', 'clusterIP 10.0.2.1:80')]);
  t.equal(rig.runs, runs + 1, 'the next change is an ordinary one');

  rig.nft.refuses = () => false;
  await rig.look(31_000);
  t.match(rig.lands('10.0.0.66:80'), /proxy port/, 'retried after a while');
  t.strictSame(rig.portal.problems(), []);
});

testRules('if the kernel rejects even the empty rules, no service is blamed', async (t, make) => {
  const rig = make();
  t.teardown(() => rig.portal.close());
  rig.nft.broken = exits('line 9 failed: No such file or directory\n');
  await t.rejects(rig.sync([web]), {
    code: 'KPNG_PORTAL_UNSUPPORTED',
    message: /No such file or directory.*even the rules without any service/s,
  });
  t.strictSame(rig.portal.problems(), []);
  rig.nft.broken = undefined;
  await rig.portal.commit(new Map());
  t.match(rig.lands('10.0.0.1:80'), /proxy port/);
});

testRules('the rules follow the addresses of the host', async (t, make) => {
  let reads = 0;
  let host: typeof NODE = NODE;
  const interfaces = () => {
    reads += 1;
    return host;
  };
  const rig = make({ nodePortAddresses: ['primary'], interfaces });
  const { told } = await written(t, rig);
  t.match(rig.lands('192.0.2.5:30080'), /proxy port/);
  rig.host = host = [...NODE, { address: '192.0.2.6', loopback: false }];
  await rig.look(2500);
  t.strictSame(told, [], 'a further address changes nothing');
  const before = reads;
  for (let seconds = 0; seconds < 10; seconds += 1) await rig.look(1000);
  t.ok(reads - before <= 5, `they are read every two seconds: ${reads - before} times in ten`);
  rig.host = host = host.filter(({ address }) => address !== '192.0.2.5');
  rig.nft.broken = { fails: 'timeout' };
  await rig.look(2500);
  t.strictSame(told, ['failed: KPNG_PORTAL_FAILED']);
  rig.nft.broken = undefined;
  await rig.look(31_000);
  t.strictSame(told.slice(1), ['written: repair'], 'retried without waiting for a change');
  t.match(rig.nft.scripts.join(''), /dnat ip to 192\.0\.2\.6 :/);
  t.match(rig.lands('192.0.2.6:30080'), /proxy port/);
});
