// Copyright (c) 2026, the tokforge.sglang contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// What Ansible calls as Python on this machine: hands its work to warm_python.py, or to Python itself where that does not run.
// In C and linked statically, because on an emulated processor the start of a Python that does the same takes half a second.
//
// A request is its length, with the three standard streams beside it, and then directory, umask, arguments and environment.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define END "\0" // with the one that a string has, two

// The strings, each with one zero byte between it and the next.
static void put_all(FILE *stream, char **strings)
{
	for (char **next = strings; *next; next++) {
		if (next != strings)
			fputc(0, stream);
		fputs(*next, stream);
	}
}

int main(int count, char **words)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "/run/warm-python" };
	int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	(void)count;
	if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof(address)) != 0) {
		words[0] = "/usr/bin/python3";
		execv(words[0], words);
		return 127;
	}

	mode_t mask = umask(0);
	umask(mask);
	char *request;
	size_t size;
	char *directory = get_current_dir_name();
	FILE *stream = open_memstream(&request, &size);
	if (!directory || !stream)
		return 1;
	fputs(directory, stream);
	fwrite(END, 1, 2, stream);
	fprintf(stream, "%d", mask);
	fwrite(END, 1, 2, stream);
	put_all(stream, words + 1);
	fwrite(END, 1, 2, stream);
	put_all(stream, environ);
	if (fclose(stream) != 0)
		return 1;

	const int streams[] = { 0, 1, 2 };
	uint32_t length = htonl(size);
	struct iovec head = { &length, sizeof(length) };
	union {
		char space[CMSG_SPACE(sizeof(streams))];
		struct cmsghdr aligned;
	} control = { { 0 } };
	struct msghdr message = { .msg_iov = &head, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	struct cmsghdr *descriptors = CMSG_FIRSTHDR(&message);
	descriptors->cmsg_level = SOL_SOCKET;
	descriptors->cmsg_type = SCM_RIGHTS;
	descriptors->cmsg_len = CMSG_LEN(sizeof(streams));
	memcpy(CMSG_DATA(descriptors), streams, sizeof(streams));
	if (sendmsg(connection, &message, 0) != sizeof(length))
		return 1;
	for (size_t sent = 0; sent < size;) {
		ssize_t part = write(connection, request + sent, size - sent);
		if (part <= 0)
			return 1;
		sent += part;
	}

	// Nothing comes when the process was killed.
	unsigned char status;
	return read(connection, &status, 1) == 1 ? status : 1;
}
