import type { Command } from '../../src/portal/exec.ts';
import type { ServiceSpec } from '../../src/service/spec.ts';
import { FakeExec, type Reaction } from './fake-exec.ts';

/** A service with every setting. */
export const SERVICE: ServiceSpec = {
  name: 'winuserspace',
  displayName: 'Kubernetes proxy',
  description: 'Proxies & balances',
  program: String.raw`C:\Program Files\kpng\winuserspace.exe`,
  args: ['-v=4', '--tls-ca', String.raw`C:\Program Files\kpng\ca.pem`],
  directory: String.raw`C:\Program Files\kpng`,
  logDirectory: String.raw`C:\ProgramData\kpng-userspace\logs`,
  logBytes: 1_048_576,
  environment: ['INTERFACE_TO_ADD_SERVICE_IP=vEthernet (nat)', 'A=b=c'],
  start: 'delayed-auto',
  dependsOn: ['kpng'],
  restartDelayMs: 2000,
  stopTimeoutMs: 15_000,
};

interface FakeService {
  state: string;
  readonly settings: Map<string, readonly string[]>;
}

/** NSSM and the services of a Windows, as far as our commands go. It prints in UTF-16, as the real one. */
export class FakeNssm extends FakeExec {
  readonly services = new Map<string, FakeService>();
  /** The states that a service passes through when it is stopped or started; the last one stays. */
  stops = ['SERVICE_STOP_PENDING', 'SERVICE_STOPPED'];
  starts = ['SERVICE_START_PENDING', 'SERVICE_RUNNING'];
  /** Whether NSSM stops waiting, and says so with its exit code. */
  givesUp = false;
  #coming: string[] = [];

  protected override react({ file, args }: Command): Reaction {
    if (!/nssm(?:\.exe)?$/.test(file)) return { fails: 'missing' };
    const [verb = '', name = '', ...rest] = args;
    const service = this.services.get(name);
    if (verb === 'install') {
      this.services.set(name, { state: 'SERVICE_STOPPED', settings: new Map() });
      return said(`Service "${name}" installed successfully!`);
    }
    if (service === undefined) return fails(3, `Can't open service!`);
    const [setting = '', ...values] = rest;
    switch (verb) {
      case 'status': {
        service.state = this.#coming.shift() ?? service.state;
        return said(service.state);
      }
      case 'set':
        service.settings.set(setting, values);
        return said(`Set parameter "${setting}" for service "${name}".`);
      case 'reset':
        service.settings.delete(setting);
        return said(`Reset parameter "${setting}" for service "${name}" to its default.`);
      case 'get':
        return said((service.settings.get(setting) ?? []).join('\n'));
      case 'start':
        this.#coming = [...this.starts];
        return this.givesUp ? fails(1, 'Unexpected status SERVICE_PAUSED') : said('START: OK');
      case 'stop':
        this.#coming = [...this.stops];
        return this.givesUp ? fails(1, 'Unexpected status SERVICE_STOP_PENDING') : said('STOP: OK');
      case 'remove':
        this.services.delete(name);
        return said('removed');
      default:
        return fails(1, 'usage');
    }
  }
}

function said(text: string): Reaction {
  return { stdout: wide(`${text}\r\n`) };
}

function fails(exitCode: number, text: string): Reaction {
  return { fails: 'exit', exitCode, stderr: wide(`${text}\r\n`) };
}

function wide(text: string): string {
  return text.replaceAll(/./gsu, '$&\0');
}
