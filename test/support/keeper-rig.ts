import { AddressKeeper } from '../../src/portal/interface/keeper.ts';
import { LinuxInterface } from '../../src/portal/interface/linux.ts';
import { portalFailed, portalLost, portalWritten } from '../../src/portal/events.ts';
import { FakeClock } from './fake-clock.ts';
import { FakeIp } from './fake-ip.ts';
import { type Teardown, listening } from './sockets.ts';

/** A keeper on a make-believe host, with what it reports. */
export class KeeperRig {
  readonly ip: FakeIp;
  readonly clock = new FakeClock();
  readonly keeper: AddressKeeper;
  /** `start +3 -0`, `lost 2`, `failed CODE`, in order. */
  readonly told: string[] = [];
  readonly messages: string[] = [];
  constructor(t: Teardown, { ip = new FakeIp(), name = 'kpng0' } = {}) {
    this.ip = ip;
    // One can bind sockets where the made-up host has addresses.
    const has = async (address: string) => ip.has(address);
    const link = Object.assign(new LinuxInterface(name, ip.exec), { has });
    this.keeper = new AddressKeeper(link, this.clock, () => 0.5);
    t.teardown(() => this.keeper.close());
    listening(t, portalWritten, ({ reason, added, removed }) => {
      this.told.push(`${reason} +${added} -${removed}`);
    });
    listening(t, portalLost, ({ message }) => this.told.push(`lost ${message}`));
    listening(t, portalFailed, ({ error }) => {
      this.told.push(`failed ${error.code} ${error.servicePort ?? 'all'}`);
      this.messages.push(error.message);
    });
  }

  /** One sync, in which everything can be listened on. */
  async sync(wants: Readonly<Record<string, readonly string[]>>): Promise<void> {
    for (const [servicePort, addresses] of Object.entries(wants)) {
      this.keeper.want(servicePort, addresses);
    }
    await this.keeper.prepare();
    await this.keeper.commit();
  }

  /** Lets time pass, step by step, and what falls due be done. */
  async pass(ms: number, step = 500): Promise<void> {
    for (let passed = 0; passed < ms; passed += step) {
      this.clock.advance(step);
      for (let turn = 0; turn < 40; turn += 1) await new Promise(setImmediate);
    }
  }

  /** What was reported since the last call. */
  news(): string[] {
    return this.told.splice(0);
  }
}
