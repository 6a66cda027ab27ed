import type { InputReader, ProtocolInputs } from '../../prefetch/inputs.ts';
import type { Input } from '../../prefetch/requirement.ts';
import { readCompose } from './compose.ts';
import { readDockerfile } from './dockerfile.ts';
import { parseImageName } from './image-name.ts';
import { looksLikeCompose, readKubernetes } from './kubernetes.ts';
import type { ImageRequirement } from './requirement.ts';

const yaml = /\.ya?ml$/i;

const readers: readonly InputReader[] = [
  { kind: 'compose', recognizes: isCompose, read: readCompose },
  { kind: 'kubernetes', recognizes: (name, input) => yaml.test(name) && !isCompose(name, input), read: readKubernetes },
  {
    kind: 'dockerfile',
    recognizes: (name) => /^(?:dockerfile|containerfile)(?:\..*)?$|\.(?:dockerfile|containerfile)$/i.test(name),
    read: readDockerfile,
  },
];

/** Readers of files that list images. */
export const imageInputs: ProtocolInputs = {
  module: import.meta.url,
  readers,
  list: {
    kind: 'images',
    expected: 'name:tag or name@digest (an image)',
    read: (line, location): ImageRequirement | undefined => {
      const image = parseImageName(line);
      return image && { location, kind: 'image', image };
    },
  },
};

function isCompose(name: string, input: Input): boolean {
  return /^(?:docker-|podman-)?compose(?:[.-].*)?\.ya?ml$/i.test(name) || (yaml.test(name) && looksLikeCompose(input));
}

export default imageInputs;
