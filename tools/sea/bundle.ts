/** Makes one file of the program and of each module that runs in a thread, for executables. */
import { build as esbuild, type Metafile, type Plugin } from 'esbuild';
import { readFile } from 'node:fs/promises';
import { join, normalize } from 'node:path';
import { TEXT_FILES, THREADS } from './assets.ts';

const ROOT = join(import.meta.dirname, '..', '..');

/** Node of the executables; what it does not support is not written. */
const TARGET = 'node26';

/** The files that the packages for gRPC's health and reflection read from their folders. */
const PROTO_FILES: Readonly<Record<string, string>> = {
  'health/v1/health.proto': 'grpc-health-check/proto/health/v1/health.proto',
  'reflection/v1/reflection.proto':
    '@grpc/reflection/build/proto/grpc/reflection/v1/reflection.proto',
  'reflection/v1alpha/reflection.proto':
    '@grpc/reflection/build/proto/grpc/reflection/v1alpha/reflection.proto',
};

/** What goes into an executable. */
export interface Bundle {
  /** The program, as a CommonJS script, which the main script of an executable has to be. */
  readonly main: string;
  /** What else is inside, by name. */
  readonly assets: Readonly<Record<string, string>>;
  /** The files that all of it was made of. */
  readonly inputs: readonly string[];
}

/** Bundles everything. Rejects with esbuild's messages, and when there is any warning. */
export async function makeBundle(): Promise<Bundle> {
  const main = await bundle({ entry: join(import.meta.dirname, 'entry.ts'), format: 'cjs' });
  const assets: Record<string, string> = {};
  for (const [name, file] of Object.entries(TEXT_FILES)) {
    assets[name] = await readFile(join(ROOT, file), 'utf8');
  }
  // What is in package.json and not asked for would only be more to read.
  const { name, version } = JSON.parse(assets['package.json'] ?? '{}') as Record<string, string>;
  assets['package.json'] = JSON.stringify({ name, version });
  const inputs = new Set(main.inputs);
  const texts = { ...assets };
  for (const [thread, file] of Object.entries(THREADS)) {
    const made = await bundle({ entry: join(ROOT, file), format: 'esm', texts });
    assets[thread] = made.code;
    for (const each of made.inputs) inputs.add(each);
  }
  return { main: main.code, assets, inputs: [...inputs].sort() };
}

interface Work {
  readonly entry: string;
  /** A thread is an ES module, as it may wait at its top level; it has no `require` of its own. */
  readonly format: 'cjs' | 'esm';
  /** What is provided to it before it begins; threads have no access to what is in the executable. */
  readonly texts?: Readonly<Record<string, string>>;
}

async function bundle({ entry, format, texts }: Work): Promise<{ code: string; inputs: string[] }> {
  const cjs = format === 'cjs';
  const result = await esbuild({
    stdin: {
      contents: `${texts ? "import 'kpng:texts';" : ''}import 'kpng:entry';`,
      resolveDir: ROOT,
      loader: 'ts',
    },
    absWorkingDir: ROOT,
    bundle: true,
    platform: 'node',
    target: TARGET,
    format,
    minify: true,
    keepNames: true,
    legalComments: 'none',
    // Node shows the line of an error.
    lineLimit: 160,
    write: false,
    metafile: true,
    logLevel: 'silent',
    define: { 'import.meta.url': '__moduleUrl' },
    banner: {
      js: cjs
        ? "const __moduleUrl=require('node:url').pathToFileURL(process.execPath).href;"
        : "import{createRequire as __createRequire}from'node:module';import{pathToFileURL as __toUrl}from'node:url';" +
          'const __moduleUrl=__toUrl(process.execPath).href,require=__createRequire(__moduleUrl);',
    },
    plugins: [entrance(entry), providedTexts(texts ?? {}), withoutApiClients, withProtoTexts],
  });
  const [warning] = result.warnings;
  if (warning !== undefined) {
    throw new Error(`${warning.location?.file ?? entry}: ${warning.text}`);
  }
  return { code: result.outputFiles[0]?.text ?? '', inputs: inputsOf(result.metafile) };
}

function inputsOf({ inputs }: Metafile): string[] {
  return Object.keys(inputs).filter((file) => !/^<|^[\w-]+:/.test(file));
}

/** The module that everything begins with, although package.json says that importing ours does nothing. */
function entrance(path: string): Plugin {
  return {
    name: 'entrance',
    setup(build) {
      build.onResolve({ filter: /^kpng:entry$/ }, () => ({ path, sideEffects: true }));
    },
  };
}

/** The module that provides a thread with the texts that it reads. */
function providedTexts(texts: Readonly<Record<string, string>>): Plugin {
  return {
    name: 'texts',
    setup(build) {
      build.onResolve({ filter: /^kpng:texts$/ }, ({ path }) => ({ path, namespace: 'kpng' }));
      build.onLoad({ filter: /^kpng:texts$/, namespace: 'kpng' }, () => ({
        contents:
          "import { provideBundle } from './src/util/bundle.ts';\n" +
          `provideBundle(${JSON.stringify(texts)});`,
        resolveDir: ROOT,
      }));
    },
  };
}

/** Leaves out the models of the whole Kubernetes API: 60 MB of memory that only API clients need. */
const withoutApiClients: Plugin = {
  name: 'without-api-clients',
  setup(build) {
    const standIn = join(import.meta.dirname, 'no-api-client.ts');
    // Of the library only KubeConfig is used; the rest of it needs the models.
    const config = join(ROOT, 'node_modules/@kubernetes/client-node/dist/config.js');
    build.onResolve({ filter: /^@kubernetes\/client-node$/ }, () => ({ path: config }));
    build.onResolve({ filter: /^(?:\.\/gen\/index\.js|undici)$/ }, ({ importer }) =>
      importer.includes(join('@kubernetes', 'client-node', 'dist')) ? { path: standIn } : undefined,
    );
  },
};

/** Gives the packages that load .proto files from their folder the definitions themselves. */
const withProtoTexts: Plugin = {
  name: 'proto-texts',
  setup(build) {
    build.onResolve({ filter: /^@grpc\/proto-loader$/ }, ({ importer }) =>
      /grpc-health-check|@grpc[\\/]reflection/.test(importer)
        ? { path: '@grpc/proto-loader', namespace: 'kpng-proto' }
        : undefined,
    );
    build.onLoad({ filter: /.*/, namespace: 'kpng-proto' }, async () => {
      const texts: Record<string, string> = {};
      for (const [key, file] of Object.entries(PROTO_FILES)) {
        texts[key] = await readFile(join(ROOT, 'node_modules', file), 'utf8');
      }
      return {
        contents: protoLoader(texts),
        resolveDir: join(ROOT, 'node_modules', '@grpc', 'reflection'),
      };
    });
  },
};

function protoLoader(texts: Readonly<Record<string, string>>): string {
  return `
import protobuf from 'protobufjs';
import { fromJSON } from '@grpc/proto-loader';
const TEXTS = ${JSON.stringify(texts)};
export function loadSync(file, options) {
  const path = file.replaceAll('\\\\', '/');
  const key = Object.keys(TEXTS).find((each) => path.endsWith(each));
  if (key === undefined) throw new Error('no definition of ' + file);
  const { root } = protobuf.parse(TEXTS[key], { keepCase: options.keepCase });
  return fromJSON(root.toJSON(), options);
}
`;
}

/** The folder of a package in node_modules that a file belongs to; undefined for our own files. */
export function packageFolder(file: string): string | undefined {
  const match = /^(.*node_modules[\\/](?:@[^\\/]+[\\/])?[^\\/]+)[\\/]/.exec(file);
  return match?.[1] === undefined ? undefined : normalize(match[1]);
}
