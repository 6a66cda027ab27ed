import type { InputReader, ProtocolInputs } from '../../prefetch/inputs.ts';
import type { Input } from '../../prefetch/item.ts';
import { programFile } from '../../runtime/program-file.ts';
import { readCompose } from './compose.ts';
import { readDockerfile } from './dockerfile.ts';
import { parseImageName } from './image-name.ts';
import { looksLikeCompose, readKubernetes } from './kubernetes.ts';
import type { ImageItem } from './image-item.ts';

const yaml = /\.ya?ml$/i;
const composeFile = /^(?:docker-|podman-)?compose(?:[.-].*)?\.ya?ml$/i;
const dockerfile = /^(?:dockerfile|containerfile)(?:\..*)?$|\.(?:dockerfile|containerfile)$/i;

const readers: readonly InputReader[] = [
  { kind: 'compose', names: 'compose.yaml', recognizes: isCompose, read: readCompose },
  {
    kind: 'kubernetes',
    names: 'Kubernetes manifests (*.yaml)',
    recognizes: (name, input) => yaml.test(name) && !isCompose(name, input),
    read: readKubernetes,
  },
  {
    kind: 'dockerfile',
    names: 'Dockerfile',
    recognizes: (name) => dockerfile.test(name),
    read: readDockerfile,
  },
];

/** Readers of files that list images. */
export const imageInputs: ProtocolInputs = {
  module: programFile('oci/prefetch/inputs.ts').href,
  readers,
  // A YAML file with any other name may be of anything.
  finds: (name) => composeFile.test(name) || dockerfile.test(name),
  foundNames: 'compose.yaml, Dockerfile',
  list: {
    kind: 'images',
    expected: 'name:tag or name@digest (an image)',
    read: (line, location): ImageItem | undefined => {
      const image = parseImageName(line);
      return image && { location, kind: 'image', image };
    },
  },
};

function isCompose(name: string, input: Input): boolean {
  return composeFile.test(name) || (yaml.test(name) && looksLikeCompose(input));
}

export default imageInputs;
